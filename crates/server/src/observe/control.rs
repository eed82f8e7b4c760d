//! How `ringway user` and `ringway status` find and reach the server that runs on a store.
//!
//! While it runs, a server keeps a file beside its store that only the owner can read: the address
//! of its management and a token made at this start. Whoever can read the file may manage it; a web
//! page or another user on the same host cannot.

use crate::config::StoreKind;
use crate::{host, random};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Largest answer that is read.
pub const MAX_ANSWER: u64 = 64 << 20;
const WITHIN: Duration = Duration::from_secs(15);

/// A server's management address and token.
#[derive(Clone, PartialEq, Eq)]
pub struct Control {
    /// Where management is served.
    pub addr: SocketAddr,
    /// What must be shown there.
    pub token: String,
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Control({})", self.addr)
    }
}

/// The control file of a store file.
pub fn path_for(store: &Path) -> PathBuf {
    store.with_extension("control")
}

/// The control file of a store. One in memory takes the place of the default one.
///
/// # Errors
/// When there is no state directory to put it in.
pub fn path_of(store: &StoreKind) -> io::Result<PathBuf> {
    Ok(match store {
        StoreKind::Redb(path) => path_for(path),
        StoreKind::Memory => path_for(&host::state_directory()?.join(host::STORE_FILE)),
    })
}

/// Removes the control file when dropped.
pub struct ControlFile(PathBuf);

impl Drop for ControlFile {
    fn drop(&mut self) {
        // It may have been removed by hand.
        let _ = fs::remove_file(&self.0);
    }
}

impl Control {
    /// With a fresh token.
    ///
    /// # Errors
    /// When the system gives no randomness.
    pub fn new(addr: SocketAddr) -> io::Result<Self> {
        let token = random::bytes::<16>()?.iter().map(|b| format!("{b:02x}")).collect();
        Ok(Control { addr, token })
    }

    /// Writes the file; it is removed when the answer is dropped.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, path: &Path) -> io::Result<ControlFile> {
        if let Some(directory) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        // An earlier one may belong to a process that was killed, and its mode is not to be trusted.
        match fs::remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        writeln!(file, "{} {}", self.addr, self.token)?;
        Ok(ControlFile(path.to_owned()))
    }

    /// Reads the file of a running server.
    ///
    /// # Errors
    /// When there is none, or it may not be read.
    pub fn read(path: &Path) -> io::Result<Self> {
        let text = fs::read_to_string(path)?;
        let wrong = || io::Error::other(format!("{}: not a control file", path.display()));
        let (addr, token) = text.trim().split_once(' ').ok_or_else(wrong)?;
        Ok(Control { addr: addr.parse().map_err(|_| wrong())?, token: token.to_owned() })
    }

    /// Asks the server: method, path, JSON body (or nothing). Gives the status and the body.
    ///
    /// # Errors
    /// When it does not answer, or not with HTTP.
    pub fn ask(&self, method: &str, path: &str, body: &str) -> io::Result<(u16, String)> {
        let mut stream = TcpStream::connect_timeout(&self.addr, WITHIN)?;
        stream.set_read_timeout(Some(WITHIN))?;
        stream.set_write_timeout(Some(WITHIN))?;
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}",
            self.addr, self.token
        );
        stream.write_all(request.as_bytes())?;
        answer(BufReader::new(stream.take(MAX_ANSWER)))
    }
}

/// Reads one HTTP answer whose length is given, or that ends with the connection.
fn answer(mut stream: impl BufRead) -> io::Result<(u16, String)> {
    let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let status = line
        .strip_prefix("HTTP/1.1 ")
        .and_then(|rest| rest.get(..3))
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(|| wrong("the answer is not HTTP"))?;
    let mut length = None;
    loop {
        line.clear();
        if stream.read_line(&mut line)? == 0 || line.trim_end().is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse::<u64>().ok();
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            return Err(wrong("the answer comes in chunks, expected a length"));
        }
    }
    let mut body = Vec::new();
    match length {
        Some(n) if n > MAX_ANSWER => return Err(wrong("the answer is too long")),
        Some(n) => {
            stream.take(n).read_to_end(&mut body)?;
            if body.len() as u64 != n {
                return Err(wrong("the answer is cut short"));
            }
        }
        None => {
            stream.read_to_end(&mut body)?;
        }
    }
    String::from_utf8(body).map(|body| (status, body)).map_err(|_| wrong("the answer is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_file_is_the_owners_alone_and_goes_with_the_server() {
        let dir = tempfile::tempdir().unwrap();
        let path = path_for(&dir.path().join("new/ringway.redb"));
        let control = Control::new("127.0.0.1:8060".parse().unwrap()).unwrap();
        let file = control.write(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(Control::read(&path).unwrap(), control);
        assert!(!format!("{control:?}").contains(&control.token));
        drop(file);
        assert!(Control::read(&path).is_err());
    }

    #[test]
    fn answers_are_read_whole_or_not_at_all() {
        let read = |text: &str| answer(text.as_bytes());
        let fine = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi";
        assert_eq!(read(fine).unwrap(), (200, "hi".to_owned()));
        assert_eq!(read("HTTP/1.1 404 Not Found\r\n\r\ngone").unwrap(), (404, "gone".to_owned()));
        assert!(read("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi").is_err());
        assert!(read("SIP/2.0 200 OK\r\n\r\n").is_err());
        assert!(read("").is_err());
    }
}
