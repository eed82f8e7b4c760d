//! A phonebook on loopback, for tries with real clients: LDAP and HTTP, one thread for each connection.
//!
//!     cargo run -p ringway-phonebook --example phonebook -- LDAP-PORT HTTP-PORT DOMAIN < people
//!
//! Each line of the input is a user, a number and a name, separated by tabs; the last two may be empty. A user that begins
//! with `-` is not present. Clocks, sockets and threads are here, as the crate has none.

#![expect(clippy::print_stdout, reason = "it is a program")]

use std::error::Error;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ringway_phonebook::http::{Request, respond};
use ringway_phonebook::ldap::{Connection, Directory, Progress};
use ringway_phonebook::{Book, Entry};
use ringway_sansio::Time;

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

fn read_book(domain: &str) -> io::Result<Book> {
    let mut entries = Vec::new();
    for line in io::stdin().lock().lines() {
        let line = line?;
        let mut parts = line.split('\t').map(str::to_string);
        let user = parts.next().unwrap_or_default();
        let mut more = || parts.next().filter(|part| !part.is_empty());
        let (number, name) = (more(), more());
        let present = !user.starts_with('-');
        let user = user.trim_start_matches('-').to_string();
        entries.push(Entry { user, number, name, domain: domain.into(), present });
    }
    Ok(Book::new(entries))
}

fn serve_ldap(mut stream: TcpStream, directory: &Directory, book: &Arc<Book>) -> io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    let mut connection = Connection::new(now());
    let mut buffer = [0; 4_096];
    loop {
        let progress = connection.work(now(), directory, book);
        let length = connection.output().len();
        stream.write_all(connection.output())?;
        connection.sent(now(), length);
        match progress {
            Progress::Closing => return Ok(()),
            Progress::Waiting if length == 0 => {}
            _ => continue,
        }
        let room = connection.room().min(buffer.len());
        match stream.read(&mut buffer[..room]) {
            Ok(0) => return Ok(()),
            Ok(length) => _ = connection.receive(now(), &buffer[..length]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

fn serve_http(mut stream: TcpStream, book: &Book) -> io::Result<()> {
    let mut head = Vec::new();
    for line in BufReader::new(stream.try_clone()?).take(8_192).lines() {
        let line = line?;
        if line.is_empty() {
            break;
        }
        head.push(line);
    }
    let target = head.first().and_then(|line| line.split(' ').nth(1)).unwrap_or("/");
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let field = |name: &str| {
        let fields = head.iter().filter_map(|line| line.split_once(':'));
        let mut found = fields.filter(|(own, _)| own.eq_ignore_ascii_case(name));
        found.next().map(|(_, value)| value.trim())
    };
    let request = Request {
        path,
        query,
        host: field("Host"),
        is_tls: false,
        accept: field("Accept"),
        user_agent: field("User-Agent"),
    };
    let response = respond(&request, book, now());
    let (status, kind, length) = (response.status, response.content_type, response.body.len());
    write!(
        stream,
        "HTTP/1.0 {status} Phonebook\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n"
    )?;
    stream.write_all(&response.body)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [ldap, http, domain] = &arguments[..] else {
        return Err("usage: phonebook LDAP-PORT HTTP-PORT DOMAIN < people".into());
    };
    let (directory, book) = (Arc::new(Directory::new(domain)), Arc::new(read_book(domain)?));
    let ldap = TcpListener::bind(("127.0.0.1", ldap.parse()?))?;
    let http = TcpListener::bind(("127.0.0.1", http.parse()?))?;
    println!("ready with {} people", book.listed().len());
    let of_http = book.clone();
    thread::spawn(move || {
        for stream in http.incoming().flatten() {
            let book = of_http.clone();
            thread::spawn(move || serve_http(stream, &book));
        }
    });
    for stream in ldap.incoming().flatten() {
        let (directory, book) = (directory.clone(), book.clone());
        thread::spawn(move || serve_ldap(stream, &directory, &book));
    }
    Ok(())
}
