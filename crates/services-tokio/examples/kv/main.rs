//! A store of values by their keys, as a small protocol over whatever transport fits.
//!
//! ```text
//! cargo run --example kv -- serve 127.0.0.1:7000
//! cargo run --example kv -- put 127.0.0.1:7000 colour blue
//! cargo run --example kv -- get 127.0.0.1:7000 colour
//! cargo run --example kv -- watch 127.0.0.1:7000
//! ```
//!
//! A connection of the group serves a request or a watch. Requests are urgent and watches are not, so that a value is
//! fetched at once although many changes are on their way; a watch is cancelled by aborting its connection, which leaves
//! the others.
#![allow(clippy::print_stdout, reason = "it is a program")]

mod client;
mod protocol;
mod server;

use client::Client;
use ringway_services_tokio::{
    LocalEndpoint, Preconnection, RemoteEndpoint, SecurityParameters, System, TransportProperties,
};
use std::error::Error;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let system = System::new();
    let properties = TransportProperties::reliable_message();
    let new = Preconnection::new(&system, properties, SecurityParameters::disabled());
    if let ["serve", address] = words[..] {
        let listener = new.from(LocalEndpoint::address(address.parse()?)).listen().await?;
        println!("listening with {:?} at port {}", listener.protocols(), listener.port());
        return Ok(server::serve(listener).await?);
    }
    let usage = "expected serve ADDRESS, put ADDRESS KEY VALUE, get ADDRESS KEY, or watch ADDRESS";
    let address = words.get(1).ok_or(usage)?.parse()?;
    let client = Client::open(&new.to(RemoteEndpoint::address(address))).await?;
    println!("{}", client.explain());
    match words[..] {
        ["put", _, key, value] => client.put(key, value.as_bytes()).await?,
        ["get", _, key] => match client.get(key).await? {
            Some(value) => println!("{}", String::from_utf8_lossy(&value)),
            None => println!("there is no {key}"),
        },
        ["watch", _] => {
            let watch = client.watch().await?;
            while let Some((key, value)) = watch.next().await? {
                println!("{key} = {}", String::from_utf8_lossy(&value));
                if key == "end" {
                    // Whoever sets it ends the watches.
                    watch.cancel();
                    break;
                }
            }
        }
        _ => return Err(usage.into()),
    }
    Ok(())
}
