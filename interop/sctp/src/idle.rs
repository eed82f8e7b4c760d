//! Many associations that do nothing, so that what each takes can be looked at from outside.

use crate::peer::Place;
use crate::say;
use ringway_sctp_tokio::Connect;
use std::net::IpAddr;
use tokio::task::JoinSet;

/// Associations that are being opened at a time.
const AT_ONCE: usize = 64;
/// Associations of one pair of addresses, so that there are ports enough.
const FROM_EACH: usize = 10_000;

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    place: Place,
    /// Associations there are to be
    #[arg(long)]
    count: usize,
    /// Opens them to this address, from several of 127.0.0.0/8; without it they are waited for
    #[arg(long)]
    connect: Option<IpAddr>,
    #[arg(long, default_value_t = 0)]
    to_port: u16,
    #[arg(long, default_value_t = 0)]
    to_udp: u16,
}

/// Holds associations until it is ended.
pub(crate) async fn run(options: Options) -> Result<bool, String> {
    let stack = options.place.stack()?;
    let mut held = Vec::with_capacity(options.count);
    if let Some(remote) = options.connect {
        let mut opening = JoinSet::new();
        say("ready");
        // Whoever looks has looked at what there is without associations when a line comes, or the end.
        std::io::stdin().read_line(&mut String::new()).map_err(|error| error.to_string())?;
        let mut begun = 0;
        while held.len() < options.count {
            while begun < options.count && opening.len() < AT_ONCE {
                let local: IpAddr = [127, 0, 1, (begun / FROM_EACH + 1) as u8].into();
                let connect = Connect {
                    encapsulation: options.to_udp,
                    ..Connect::new(&[local], &[remote], options.to_port)
                };
                let stack = stack.clone();
                opening.spawn(async move { stack.connect(&connect).await });
                begun += 1;
            }
            match opening.join_next().await {
                Some(Ok(Ok(association))) => held.push(association),
                Some(Ok(Err(error))) => return Err(format!("after {}: {error}", held.len())),
                _ => return Err("an association was lost sight of".to_owned()),
            }
        }
    } else {
        let Place { bind, port, .. } = &options.place;
        let listener = stack.listen(bind, *port, None).map_err(|error| error.to_string())?;
        say("ready");
        while held.len() < options.count {
            held.push(listener.accept().await.map_err(|error| error.to_string())?);
        }
    }
    say(&format!("held {}", held.len()));
    std::future::pending::<()>().await;
    Ok(true)
}
