//! The control socket: how `ringway user` and `ringway status` find and reach the server of a
//! store.
//!
//! ```text
//! /var/lib/ringway/ringway.redb               the store
//! /var/lib/ringway/ringway.control/           0700, locked (flock) while a server runs
//! /var/lib/ringway/ringway.control/socket     0600, HTTP
//! ```
//! Both ends check the user id of the peer (`SO_PEERCRED`, unix(7)) before they trust or send a
//! byte. The server accepts its own user and root. The client accepts its own user, root, and, if
//! it runs as root, the owner of the store. A name in the file system proves nothing: after a
//! crash, or in a directory that others can write to, any process may listen there.

use crate::config::StoreKind;
use crate::host;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::geteuid;
use std::fs::{self, File, Permissions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Maximum size of a response that is read into memory.
pub const MAX_RESPONSE: u64 = 64 << 20;
/// Name of the socket in its directory.
const SOCKET: &str = "socket";
/// Maximum length of a Unix socket's path in bytes, without its final NUL (`sun_path`, unix(7)).
const MAX_PATH: usize = 107;
/// Timeout of each read and write, unless a request has another.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Returns the control directory of a store file.
pub fn directory_for(store: &Path) -> PathBuf {
    store.with_extension("control")
}

/// Returns the control directory of a store. A store in memory has that of the default store.
///
/// # Errors
/// Fails when there is no state directory.
pub fn directory_of(store: &StoreKind) -> io::Result<PathBuf> {
    Ok(match store {
        StoreKind::Redb(path) => directory_for(path),
        StoreKind::Memory | StoreKind::Redis(_) => {
            directory_for(&host::state_directory()?.join(host::STORE_FILE))
        }
    })
}

/// Calls `then` with a path of the socket in `directory` that is short enough for `sun_path`.
fn with_short_path<T>(
    directory: &Path,
    then: impl FnOnce(&Path) -> io::Result<T>,
) -> io::Result<T> {
    let path = directory.join(SOCKET);
    let length = path.as_os_str().len();
    if length <= MAX_PATH {
        return then(&path);
    }
    let open = File::open(directory)?;
    // As connect(2) and bind(2) report it of a short path.
    if !open.metadata()?.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    let short = PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()));
    if !short.is_dir() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "expected a path of at most {MAX_PATH} bytes where /proc is not mounted, got {length}"
            ),
        ));
    }
    then(&short.join(SOCKET))
}

/// The control directory of a server: owned by its user, and locked until the process ends.
pub struct ControlDirectory {
    path: PathBuf,
    _lock: Flock<File>,
}

impl ControlDirectory {
    /// Creates the directory if it does not exist, and locks it.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] if another server has locked it. Other errors if it belongs to
    /// another user, or cannot be created.
    pub fn open(path: &Path) -> io::Result<Self> {
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        host::create_private_directory(parent)?;
        match fs::symlink_metadata(path) {
            // Earlier versions kept a file under this name.
            Ok(found) if found.is_file() && is_ours(&found, parent) => fs::remove_file(path)?,
            Ok(found) if !found.is_dir() => return Err(io::ErrorKind::NotADirectory.into()),
            Ok(found) if !is_ours(&found, parent) => {
                let what = format!("expected a directory of user {}, got one of", geteuid());
                let what = format!("{what} {}", found.uid());
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
            }
            _ => {}
        }
        host::create_private_directory(path)?;
        fs::set_permissions(path, Permissions::from_mode(0o700))?;
        let lock = Flock::lock(File::open(path)?, FlockArg::LockExclusiveNonblock);
        let lock = lock.map_err(|(_, errno)| match errno {
            nix::errno::Errno::EWOULDBLOCK => {
                io::Error::new(io::ErrorKind::AddrInUse, "in use by another server")
            }
            errno => errno.into(),
        })?;
        Ok(ControlDirectory { path: path.to_owned(), _lock: lock })
    }

    /// Listens on the socket. An existing socket was left by a server that ended, and is replaced.
    ///
    /// # Errors
    /// Fails when the system refuses.
    pub fn listen(self) -> io::Result<(UnixListener, ControlSocket)> {
        let listener = with_short_path(&self.path, |path| {
            match fs::symlink_metadata(path) {
                Ok(found) if found.file_type().is_socket() => fs::remove_file(path)?,
                Ok(_) => return Err(io::Error::other(format!("{SOCKET:?} is not a socket"))),
                Err(_) => {}
            }
            let listener = UnixListener::bind(path)?;
            fs::set_permissions(path, Permissions::from_mode(0o600))?;
            Ok(listener)
        })?;
        Ok((listener, ControlSocket(self)))
    }
}

/// Returns whether a server may use what it found: it must belong to its user or, for root, to the
/// owner of the parent directory.
fn is_ours(found: &fs::Metadata, parent: &Path) -> bool {
    let uid = geteuid();
    let owner = |path: &Path| fs::metadata(path).ok().map(|m| m.uid());
    found.uid() == uid.as_raw() || (uid.is_root() && owner(parent) == Some(found.uid()))
}

/// A listening socket. Dropping it removes its name.
pub struct ControlSocket(ControlDirectory);

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // It may have been removed by hand.
        let _ = fs::remove_file(self.0.path.join(SOCKET));
    }
}

/// Returns whether a server of user `own` accepts requests of this peer.
pub fn may_manage(peer: u32, own: u32) -> bool {
    peer == own || peer == 0
}

/// Returns whether a client of user `own` sends requests to a listener of user `peer`; `owner` is
/// the store's.
fn is_trusted_listener(peer: u32, own: u32, owner: Option<u32>) -> bool {
    peer == own || peer == 0 || (own == 0 && owner == Some(peer))
}

/// The client's connection to the running server of a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Control {
    directory: PathBuf,
    /// User id of the owner of the store.
    owner: Option<u32>,
    timeout: Duration,
}

impl Control {
    /// Describes the server of this store, whether or not one runs.
    ///
    /// # Errors
    /// Fails when there is no state directory.
    pub fn of(store: &StoreKind) -> io::Result<Self> {
        let directory = directory_of(store)?;
        let file = match store {
            StoreKind::Redb(path) => fs::metadata(path).ok(),
            StoreKind::Memory | StoreKind::Redis(_) => None,
        };
        let around = || directory.parent().and_then(|parent| fs::metadata(parent).ok());
        let owner = file.or_else(around).map(|m| m.uid());
        Ok(Control { directory, owner, timeout: TIMEOUT })
    }

    /// Returns one with another timeout of each read and write, for requests that are answered late.
    pub(crate) fn with_timeout(&self, timeout: Duration) -> Self {
        Control { directory: self.directory.clone(), owner: self.owner, timeout }
    }

    /// Returns the path of the socket.
    pub fn path(&self) -> PathBuf {
        self.directory.join(SOCKET)
    }

    /// Connects, and checks the listener's user before anything is sent. Returns `None` if no
    /// server runs.
    fn connect(&self) -> io::Result<Option<UnixStream>> {
        use io::ErrorKind::{ConnectionRefused, NotADirectory, NotFound};
        let stream = match with_short_path(&self.directory, |path| UnixStream::connect(path)) {
            Ok(stream) => stream,
            Err(e) if matches!(e.kind(), ConnectionRefused | NotADirectory | NotFound) => {
                return Ok(None);
            }
            Err(e) => return Err(e),
        };
        let peer = getsockopt(&stream, PeerCredentials)?.uid();
        let own = geteuid().as_raw();
        if !is_trusted_listener(peer, own, self.owner) {
            let what =
                format!("user {peer} listens there, expected user {own} or root; nothing was sent");
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        stream.set_read_timeout(Some(self.timeout))?;
        stream.set_write_timeout(Some(self.timeout))?;
        Ok(Some(stream))
    }

    /// Sends a request with a JSON body, which may be empty. Returns the status and the body, or
    /// `None` if no server runs.
    ///
    /// # Errors
    /// Fails when the listener is not trusted, does not answer, or does not answer with HTTP.
    pub fn request(
        &self,
        method: &str,
        path: &str,
        body: &str,
    ) -> io::Result<Option<(u16, String)>> {
        let Some((status, response)) = self.open(method, path, body)? else { return Ok(None) };
        let mut bytes = Vec::new();
        response.take(MAX_RESPONSE).read_to_end(&mut bytes)?;
        if bytes.len() as u64 == MAX_RESPONSE {
            return Err(invalid("the answer is too long"));
        }
        let text = String::from_utf8(bytes).map_err(|_| invalid("the answer is not UTF-8"))?;
        Ok(Some((status, text)))
    }

    /// Sends a request as [`Control::request`] does, and returns the body as a stream.
    ///
    /// # Errors
    /// As [`Control::request`].
    pub fn open(
        &self,
        method: &str,
        path: &str,
        body: &str,
    ) -> io::Result<Option<(u16, ResponseBody<BufReader<UnixStream>>)>> {
        let Some(mut stream) = self.connect()? else { return Ok(None) };
        let length = body.len();
        // HTTP/1.0, so that the length of a response is declared or ends with the connection (RFC
        // 9112 section 6.3), and is never chunked.
        let request = format!(
            "{method} {path} HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes())?;
        response(BufReader::new(stream)).map(Some)
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

/// The body of a response.
pub struct ResponseBody<R> {
    stream: R,
    /// Remaining octets; `None` if the end of the connection ends the body.
    left: Option<u64>,
}

impl<R: Read> Read for ResponseBody<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let Some(left) = &mut self.left else { return self.stream.read(out) };
        let room = usize::try_from(*left).unwrap_or(usize::MAX).min(out.len());
        let got = self.stream.read(&mut out[..room])?;
        if got == 0 && room > 0 {
            return Err(invalid("the answer is cut short"));
        }
        *left -= got as u64;
        Ok(got)
    }
}

/// Maximum size of the head of a response.
const MAX_HEAD: u64 = 16 << 10;

/// Reads the head of one HTTP response.
fn response<R: BufRead>(mut stream: R) -> io::Result<(u16, ResponseBody<R>)> {
    let mut head = (&mut stream).take(MAX_HEAD);
    let mut line = String::new();
    head.read_line(&mut line)?;
    let status = line
        .strip_prefix("HTTP/1.")
        .and_then(|rest| rest.get(2..5))
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(|| invalid("the answer is not HTTP"))?;
    let mut left = None;
    loop {
        line.clear();
        if head.read_line(&mut line)? == 0 {
            return Err(invalid("the answer is cut short"));
        }
        if line.trim_end().is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        if name.eq_ignore_ascii_case("content-length") {
            left = Some(value.trim().parse().map_err(|_| invalid("the answer has no length"))?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            return Err(invalid("the answer comes in chunks, expected a length"));
        }
    }
    Ok((status, ResponseBody { stream, left }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control(directory: &Path) -> Control {
        Control { directory: directory.to_owned(), owner: None, timeout: TIMEOUT }
    }

    fn listen(directory: &Path) -> (UnixListener, ControlSocket) {
        ControlDirectory::open(directory).unwrap().listen().unwrap()
    }

    #[test]
    fn the_socket_is_private_and_removed_with_the_server() {
        let dir = tempfile::tempdir().unwrap();
        let path = directory_for(&dir.path().join("new/ringway.redb"));
        let mode = |p: &Path| fs::metadata(p).unwrap().permissions().mode() & 0o777;
        let (listener, socket) = listen(&path);
        assert_eq!((mode(&path), mode(&path.join(SOCKET))), (0o700, 0o600));
        let error = ControlDirectory::open(&path).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(control(&path).connect().unwrap().is_some());
        drop((listener, socket));
        assert!(!path.join(SOCKET).exists());
        assert!(control(&path).connect().unwrap().is_none());
    }

    #[test]
    fn the_socket_of_a_killed_server_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.control");
        // Earlier versions kept a file under this name.
        fs::write(&path, "127.0.0.1:8060 token").unwrap();
        let (listener, socket) = listen(&path);
        // As after SIGKILL: the name remains, no process listens.
        std::mem::forget(socket);
        drop(listener);
        assert!(path.join(SOCKET).exists());
        assert!(control(&path).connect().unwrap().is_none());
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        // This process still holds the lock; a new file description acts as another process.
        let error = ControlDirectory::open(&path).err().unwrap();
        assert_eq!(error.to_string(), "in use by another server");
        let path = dir.path().join("y.control");
        fs::create_dir(&path).unwrap();
        drop(UnixListener::bind(path.join(SOCKET)).unwrap());
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        let (_listener, _socket) = listen(&path);
        assert!(control(&path).connect().unwrap().is_some());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_file_with_the_sockets_name_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.control");
        fs::create_dir(&path).unwrap();
        fs::write(path.join(SOCKET), "thesis").unwrap();
        let error = ControlDirectory::open(&path).unwrap().listen().err().unwrap();
        assert!(error.to_string().contains("is not a socket"), "{error}");
        assert_eq!(fs::read_to_string(path.join(SOCKET)).unwrap(), "thesis");
        let link = dir.path().join("link.control");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let error = ControlDirectory::open(&link).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
    }

    /// unix(7): `sun_path` has 108 bytes. A longer path is reached through a descriptor of the
    /// directory.
    #[test]
    fn a_path_longer_than_sun_path_works() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("d".repeat(100)).join("e".repeat(100));
        let path = directory_for(&deep.join("x.redb"));
        assert!(path.as_os_str().len() > MAX_PATH);
        let (_listener, socket) = listen(&path);
        assert!(control(&path).connect().unwrap().is_some());
        drop(socket);
        assert!(!path.join(SOCKET).exists());
        // Earlier versions kept a file under this name: there is no server.
        let earlier = deep.join("earlier.control");
        fs::write(&earlier, "127.0.0.1:8060 token").unwrap();
        assert!(control(&earlier).connect().unwrap().is_none());
    }

    #[test]
    fn only_the_same_user_and_root_trust_each_other() {
        let (root, ringway, alice, mallory) = (0, 999, 1000, 1001);
        for (peer, own, serves) in [
            (alice, alice, true),
            (root, ringway, true),
            (mallory, ringway, false),
            (mallory, root, false),
        ] {
            assert_eq!(may_manage(peer, own), serves, "{peer} {own}");
        }
        for (peer, own, owner, trusted) in [
            (alice, alice, None, true),
            (root, alice, Some(alice), true),
            (ringway, root, Some(ringway), true),
            (mallory, root, Some(ringway), false),
            (mallory, alice, Some(alice), false),
            // A store that another user prepared is no reason to trust that user.
            (mallory, alice, Some(mallory), false),
            (mallory, root, None, false),
        ] {
            assert_eq!(is_trusted_listener(peer, own, owner), trusted, "{peer} {own} {owner:?}");
        }
    }

    #[test]
    fn incomplete_responses_are_errors() {
        let read = |text: &'static str| {
            let (status, mut body) = response(text.as_bytes())?;
            let mut out = String::new();
            body.read_to_string(&mut out)?;
            io::Result::Ok((status, out))
        };
        let fine = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi";
        assert_eq!(read(fine).unwrap(), (200, "hi".to_owned()));
        assert_eq!(read("HTTP/1.0 404 Not Found\r\n\r\ngone").unwrap(), (404, "gone".to_owned()));
        assert!(read("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi").is_err());
        assert!(read("HTTP/1.1 200 OK\r\ncontent-len").is_err());
        assert!(read("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").is_err());
        assert!(read("SIP/2.0 200 OK\r\n\r\n").is_err());
        assert!(read("").is_err());
    }
}
