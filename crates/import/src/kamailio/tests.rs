use super::*;
use crate::found::{Reason, User};
use crate::{MAX_USERS, MAX_VALUE};
use proptest::prelude::*;
use ringway_sip::digest::{Algorithm, Ha1};

macro_rules! data {
    ($name:literal) => {
        include_bytes!(concat!("../../tests/data/", $name))
    };
}

/// MD5 of `102:example.org:secret`.
const HA1: &str = "8312c55030fd44b0219c26fa18667f6e";

fn read(bytes: &[u8]) -> Found {
    kamailio("f", bytes).unwrap()
}

fn fails(text: &str) -> String {
    kamailio("f", text.as_bytes()).unwrap_err().to_string()
}

fn password(user: &User) -> &str {
    user.password.as_deref().unwrap()
}

fn refused(found: &Found) -> Vec<String> {
    let line =
        |r: &Refusal| format!("{} {}: {}", r.at.line, r.name.as_deref().unwrap_or("-"), r.reason);
    found.refused.iter().map(line).collect()
}

/// Checks 102, which has a hash alone and is the second one in all files.
fn check_102(user: &User) {
    assert_eq!((user.name.as_str(), user.domain.as_deref()), ("102", Some("example.org")));
    assert_eq!(user.realm.as_deref(), Some("example.org"));
    assert_eq!(user.password, None);
    assert_eq!(user.hashes[..], [Ha1::new(Algorithm::Md5, b"102", b"example.org", b"secret")]);
}

#[test]
fn a_dump_of_mysql_is_read() {
    let found = read(data!("mysqldump.sql"));
    assert_eq!(found.users.len(), 3);
    assert_eq!(password(&found.users[0]), "a'b\\c");
    assert_eq!(found.users[0].at.to_string(), "f:43");
    check_102(&found.users[1]);
    assert_eq!(password(&found.users[2]), "say \"x\"");
    let why = Reason::OnlyHa1b;
    assert_eq!(refused(&found), [format!("45 104: {why}")]);
}

#[test]
fn dumps_of_postgresql_are_read() {
    for dump in [&data!("pg_dump.sql")[..], data!("pg_dump-inserts.sql")] {
        let found = read(dump);
        assert_eq!((found.users.len(), found.refused.len()), (3, 0));
        assert_eq!(password(&found.users[0]), "a'b\\c");
        check_102(&found.users[1]);
        assert_eq!(password(&found.users[2]), "tab\there");
    }
}

#[test]
fn a_dump_of_sqlite_is_read() {
    let found = read(data!("sqlite3.sql"));
    assert_eq!(password(&found.users[0]), "a'b\\c");
    assert_eq!(found.users[1].name, "103");
    assert_eq!(refused(&found), [format!("5 102: {}", Reason::Expression("password"))]);
}

#[test]
fn the_table_of_opensips_is_read() {
    let found = read(data!("opensips.sql"));
    let algorithms: Vec<_> = found.users[0].hashes.iter().map(Ha1::algorithm).collect();
    assert_eq!(algorithms, [Algorithm::Md5, Algorithm::Sha256, Algorithm::Sha512_256]);
    // MySQL computes the hash when the dump is loaded.
    assert_eq!(refused(&found), [format!("13 testing: {}", Reason::Expression("ha1_sha256"))]);
}

#[test]
fn a_table_of_db_text_is_read() {
    let found = read(data!("subscriber"));
    assert_eq!(password(&found.users[0]), "a:b\\c");
    check_102(&found.users[1]);
    let columns = Reason::Columns { expected: 6, got: 5 };
    assert_eq!(refused(&found), [format!("4 -: {columns}"), format!("5 -: {}", Reason::Escape)]);
}

#[test]
fn csv_is_read_with_any_delimiter() {
    let text = format!(
        "Username,domain,password,ha1\r\n101,example.org,\"a,\"\"b\"\r\n102,example.org,,{HA1}\r\n"
    );
    let found = read(text.as_bytes());
    assert_eq!(refused(&found), [format!("2 -: {}", Reason::Columns { expected: 4, got: 3 })]);
    check_102(&found.users[0]);
    assert_eq!(found.users[0].at.line, 3);
    for delimiter in [";", "\t"] {
        let text =
            format!("id{delimiter}username{delimiter}password\n1{delimiter}101{delimiter}a\\\\b\n");
        let found = read(text.as_bytes());
        // Only `mysql --batch`, with tabs, escapes.
        let expected = if delimiter == "\t" { "a\\b" } else { "a\\\\b" };
        assert_eq!(password(&found.users[0]), expected);
        assert_eq!(found.users[0].domain, None);
    }
    let found = read(b"\xef\xbb\xbfusername,password\n\"101\",\"two\nlines\"\n102,x\n");
    assert_eq!(found.users[1].at.line, 4);
}

/// An INSERT by hand may have columns in any order, and functions instead of values.
#[test]
fn an_insert_may_name_its_columns() {
    let found = read(
        b"INSERT IGNORE INTO `k`.`subscriber` (`password`, username) VALUES ('x', 101), (NULL, 'a'),\n\
          ('y', CONCAT('1', (2))) ON DUPLICATE KEY UPDATE username = 'b';\n\
          REPLACE subscriber (username, password) VALUE ('102', 'z');\n\
          insert into subscriber select * from other;\n",
    );
    let users: Vec<_> = found.users.iter().map(|u| (u.name.as_str(), password(u))).collect();
    assert_eq!(users, [("101", "x"), ("102", "z")]);
    let expected = [
        format!("1 a: {}", Reason::NoSecret),
        format!("2 -: {}", Reason::Expression("username")),
        format!("4 -: {}", Reason::Query),
    ];
    assert_eq!(refused(&found), expected);
}

#[test]
fn a_backslash_of_an_unknown_dialect_is_not_guessed() {
    let text = "INSERT INTO subscriber (username, password) VALUES ('101', 'a\\'b');";
    let error = fails(text);
    assert!(error.contains("a backslash, which some take for an escape"), "{error}");
    assert!(!error.contains("a\\"), "{error}");
    let mysql = format!("-- MySQL dump\n{text}");
    assert_eq!(password(&read(mysql.as_bytes()).users[0]), "a'b");
}

/// Kamailio's `algorithm` parameter may make `ha1` a SHA-256 hash.
#[test]
fn ha1_may_be_sha_256() {
    let hex = "ab".repeat(32);
    let found = read(format!("username,ha1\n101,{hex}\n102,{}\n", &hex[..40]).as_bytes());
    assert_eq!(found.users[0].hashes[0].algorithm(), Algorithm::Sha256);
    assert_eq!(refused(&found), [format!("3 102: {}", Reason::Hash("ha1"))]);
}

#[test]
fn a_file_of_another_kind_is_refused() {
    assert!(fails("").contains("expected a dump in SQL"));
    assert!(fails("hello\nworld\n").contains("expected a dump in SQL"));
    assert!(fails("-- x\nCREATE TABLE other (a INT);").contains("of the table `subscriber`"));
    assert!(fails("username,email\n").contains("with a column `password`"));
    assert!(fails("INSERT INTO subscriber VALUES ('a')").contains("the names of the columns"));
    assert!(fails("INSERT INTO subscriber (username, password) VALUES ('a").contains("f:1: "));
    assert!(
        fails("COPY subscriber (username, ha1) FROM stdin;\na\tb\n").contains("after the rows")
    );
    assert!(fails("COPY subscriber (username, ha1) FROM stdin CSV;\n").contains("without options"));
    assert_eq!(kamailio("f", b"\xff\xfeu\0").unwrap_err().to_string(), "f:1: expected UTF-8");
}

#[test]
fn text_that_is_not_utf_8_is_refused_by_its_row() {
    let found = read(b"username,password\n\xff,x\n101,\xff\n102,x\n");
    let expected = ["2 -: username: expected UTF-8", "3 101: password: expected UTF-8"];
    assert_eq!(refused(&found), expected);
    assert_eq!(found.users.len(), 1);
}

#[test]
fn limits_are_kept() {
    let long = format!("username,password\n101,{}\n", "x".repeat(MAX_VALUE + 1));
    assert_eq!(read(long.as_bytes()).refused[0].reason, Reason::TooLong("password"));
    let many = format!("username,password\n{}", "a,b\n".repeat(MAX_USERS + 1));
    assert!(fails(&many).ends_with(&format!("users: expected at most {MAX_USERS}")));
    let wide = format!("username,password{}\n", ",x".repeat(MAX_COLUMNS));
    assert!(fails(&wide).ends_with(&format!("columns: expected at most {MAX_COLUMNS}")));
    let line = format!("username(str) ha1(str)\n{}\n", "x".repeat(MAX_LINE + 1));
    assert!(fails(&line).contains("bytes of a line"));
}

#[test]
fn secrets_are_not_shown() {
    let found = read(data!("mysqldump.sql"));
    let text = format!("{found:?}");
    assert!(!text.contains("a'b") && !text.contains(HA1) && !text.contains("say"), "{text}");
}

/// Text of which dumps are made, so that random input gets behind the first statement.
fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let words = [
        "INSERT INTO subscriber ",
        "(username, password) ",
        "VALUES ",
        "('a','b')",
        "'",
        "\"",
        "`",
        ",",
        ";",
        "(",
        ")",
        "\\",
        "--",
        "/*!",
        "*/",
        "COPY subscriber (username, ha1) FROM stdin;\n",
        "\\.\n",
        "\n",
        "\t",
        "$a$",
        "E'\\x4",
        "CREATE TABLE subscriber (",
        "username text",
        "NULL",
        "_utf8 ",
        ":",
        "username(str) password(str)\n",
        "username,password\n",
        "\\N",
        "\u{fffd}",
        "SET x",
        "0",
    ];
    prop::collection::vec(
        prop_oneof![
            9 => prop::sample::select(words.to_vec()).prop_map(|w| w.as_bytes().to_vec()),
            1 => prop::collection::vec(any::<u8>(), 0..4),
        ],
        0..60,
    )
    .prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn hostile_input_is_read_or_refused(bytes in pieces()) {
        if let Ok(found) = kamailio("f", &bytes) {
            prop_assert!(found.users.iter().all(|u| !u.name.is_empty()));
            prop_assert!(found.users.iter().all(|u| u.password.is_some() || !u.hashes.is_empty()));
        }
    }

    #[test]
    fn any_password_survives_a_dump(password in "[^\0]{1,40}", comment in any::<bool>()) {
        let mysql: String = password
            .chars()
            .map(|c| match c {
                '\n' => "\\n".to_owned(),
                '\'' | '"' | '\\' => format!("\\{c}"),
                c => c.to_string(),
            })
            .collect();
        let postgres = password.replace('\'', "''");
        let copied: String = password
            .chars()
            .map(|c| match c {
                '\n' => "\\n".to_owned(),
                '\r' => "\\r".to_owned(),
                '\t' => "\\t".to_owned(),
                '\\' => "\\\\".to_owned(),
                c => c.to_string(),
            })
            .collect();
        let dbtext = copied.replace(':', "\\:");
        let csv = password.replace('"', "\"\"");
        let insert = "INSERT INTO subscriber (username, password) VALUES ('a', ";
        let space = if comment { "/* '; */" } else { " " };
        for text in [
            format!("-- MySQL dump\n{insert}{space}'{mysql}');"),
            format!("SET standard_conforming_strings = on;\n{insert}{space}'{postgres}');"),
            format!("COPY subscriber (username, password) FROM stdin;\na\t{copied}\n\\.\n"),
            format!("username(str) password(str)\na:{dbtext}\n"),
            format!("username,password\na,\"{csv}\"\n"),
        ] {
            let found = kamailio("f", text.as_bytes()).unwrap();
            prop_assert_eq!(found.users[0].password.as_deref(), Some(&*password), "{}", text);
        }
    }
}
