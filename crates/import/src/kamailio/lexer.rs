//! The tokens of a dump in SQL.
//!
//! A string is returned as it is written, so that skipping one allocates nothing.

use crate::error::FileError;
use crate::found::Position;
use std::sync::Arc;

/// The program that wrote the dump. It decides whether a backslash escapes (MySQL) or not (SQL).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Dialect {
    Unknown,
    MySql,
    Postgres,
    /// PostgreSQL with `standard_conforming_strings` off.
    PostgresEscaped,
    Sqlite,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Token<'a> {
    /// A keyword, a name without quotes, or a number.
    Word(&'a [u8]),
    /// A name in quotes, without them. A doubled quote in it stays.
    Name(&'a [u8]),
    /// A string, without its quotes.
    Text(Text<'a>),
    Punctuation(u8),
    End,
}

/// A string as it is written between its quotes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Text<'a> {
    pub(super) raw: &'a [u8],
    /// The octet before and after it.
    pub(super) quote: u8,
    pub(super) quoting: Quoting,
}

/// How a string is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Quoting {
    /// A quote is doubled.
    Standard,
    /// Besides, a backslash escapes as in MySQL.
    MySql,
    /// Besides, a backslash escapes as in PostgreSQL.
    Postgres,
}

impl Token<'_> {
    /// Returns whether it is this keyword.
    pub(super) fn is(&self, keyword: &str) -> bool {
        matches!(self, Token::Word(word) if word.eq_ignore_ascii_case(keyword.as_bytes()))
    }
}

pub(super) struct Lexer<'a> {
    file: Arc<str>,
    bytes: &'a [u8],
    at: usize,
    line: u32,
    /// The line in which the last token began.
    token_line: u32,
    pub(super) dialect: Dialect,
}

fn is_word(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'_' || b >= 0x80
}

impl<'a> Lexer<'a> {
    pub(super) fn new(file: &Arc<str>, bytes: &'a [u8]) -> Self {
        let dialect = Dialect::Unknown;
        Lexer { file: file.clone(), bytes, at: 0, line: 1, token_line: 1, dialect }
    }

    /// Returns the position of the last token.
    pub(super) fn position(&self) -> Position {
        Position { file: self.file.clone(), line: self.token_line }
    }

    pub(super) fn syntax(&self, expected: &'static str, got: &'static str) -> FileError {
        FileError::Syntax { at: self.position(), expected, got }
    }

    /// Notes which program has written the dump, unless that is known.
    pub(super) fn note(&mut self, dialect: Dialect) {
        if self.dialect == Dialect::Unknown {
            self.dialect = dialect;
        }
    }

    fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// Moves on by a number of octets, which are there.
    fn advance(&mut self, length: usize) -> &'a [u8] {
        let passed = &self.rest()[..length];
        self.at += length;
        let lines = passed.iter().filter(|b| **b == b'\n').count();
        self.line = self.line.saturating_add(u32::try_from(lines).unwrap_or(u32::MAX));
        passed
    }

    /// Returns the rest of the line, and moves behind it.
    pub(super) fn take_line(&mut self) -> Option<&'a [u8]> {
        self.token_line = self.line;
        if self.rest().is_empty() {
            return None;
        }
        let end = self.rest().iter().position(|b| *b == b'\n');
        let line = self.advance(end.map_or(self.rest().len(), |end| end + 1));
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    }

    pub(super) fn token(&mut self) -> Result<Token<'a>, FileError> {
        self.skip_space()?;
        self.token_line = self.line;
        let Some(&first) = self.rest().first() else { return Ok(Token::End) };
        match first {
            b'\'' => self.text(self.quoting()),
            b'"' if self.dialect == Dialect::MySql => self.text(Quoting::MySql),
            b'"' => self.name(b'"'),
            b'`' => {
                self.note(Dialect::MySql);
                self.name(b'`')
            }
            b'$' => self.dollar_text(),
            b if is_word(b) => {
                let length = self.rest().iter().take_while(|b| is_word(**b) || **b == b'.').count();
                // `public.subscriber` is two names and a point; 1.5 is one number.
                let length = match first.is_ascii_digit() {
                    true => length,
                    false => self.rest().iter().take_while(|b| is_word(**b)).count(),
                };
                let word = self.advance(length);
                match self.rest().first() {
                    Some(b'\'')
                        if word.eq_ignore_ascii_case(b"E") && self.dialect != Dialect::MySql =>
                    {
                        self.text(Quoting::Postgres)
                    }
                    _ => Ok(Token::Word(word)),
                }
            }
            other => {
                self.advance(1);
                Ok(Token::Punctuation(other))
            }
        }
    }

    fn quoting(&self) -> Quoting {
        match self.dialect {
            Dialect::MySql => Quoting::MySql,
            Dialect::PostgresEscaped => Quoting::Postgres,
            Dialect::Postgres | Dialect::Sqlite | Dialect::Unknown => Quoting::Standard,
        }
    }

    fn skip_space(&mut self) -> Result<(), FileError> {
        loop {
            let space = self.rest().iter().take_while(|b| b.is_ascii_whitespace()).count();
            self.advance(space);
            self.token_line = self.line;
            let rest = self.rest();
            let is_mysql = matches!(self.dialect, Dialect::MySql | Dialect::Unknown);
            if rest.starts_with(b"--") || (is_mysql && rest.starts_with(b"#")) {
                let line = self.take_line().unwrap_or_default();
                self.recognise(line);
            } else if rest.starts_with(b"/*") {
                if rest.starts_with(b"/*!") || rest.starts_with(b"/*M!") {
                    self.note(Dialect::MySql);
                }
                let end = rest[2..].windows(2).position(|w| w == b"*/");
                let end =
                    end.ok_or_else(|| self.syntax("the end of a comment", "the end of the file"))?;
                self.advance(end + 4);
            } else {
                return Ok(());
            }
        }
    }

    /// Recognises a program by a comment at the beginning of its dumps.
    fn recognise(&mut self, comment: &[u8]) {
        const PROGRAMS: [(&[u8], Dialect); 4] = [
            (b"-- MySQL dump", Dialect::MySql),
            (b"-- MariaDB dump", Dialect::MySql),
            (b"-- phpMyAdmin SQL Dump", Dialect::MySql),
            (b"-- PostgreSQL database", Dialect::Postgres),
        ];
        if let Some((_, dialect)) = PROGRAMS.iter().find(|(start, _)| comment.starts_with(start)) {
            self.note(*dialect);
        }
    }

    fn name(&mut self, quote: u8) -> Result<Token<'a>, FileError> {
        self.advance(1);
        let length = self.until_quote(quote, false)?;
        let name = self.advance(length);
        self.advance(1);
        Ok(Token::Name(name))
    }

    fn text(&mut self, quoting: Quoting) -> Result<Token<'a>, FileError> {
        let quote = self.rest()[0];
        self.advance(1);
        let length = self.until_quote(quote, quoting != Quoting::Standard)?;
        let raw = self.advance(length);
        self.advance(1);
        if self.dialect == Dialect::Unknown && quoting == Quoting::Standard && raw.contains(&b'\\')
        {
            return Err(self.syntax(
                "the dump of a known program (mysqldump, pg_dump, sqlite3) with its first lines",
                "a backslash, which some take for an escape",
            ));
        }
        Ok(Token::Text(Text { raw, quote, quoting }))
    }

    /// Returns the number of octets up to the quote that ends a string. A doubled quote does not.
    fn until_quote(&self, quote: u8, backslash: bool) -> Result<usize, FileError> {
        let rest = self.rest();
        let mut i = 0;
        loop {
            match rest.get(i) {
                Some(b'\\') if backslash => i += 2,
                Some(b) if *b == quote && rest.get(i + 1) == Some(&quote) => i += 2,
                Some(b) if *b == quote => return Ok(i),
                Some(_) => i += 1,
                None => return Err(self.syntax("the end of a string", "the end of the file")),
            }
        }
    }

    /// Skips a string of PostgreSQL that is quoted by a tag, as bodies of functions are.
    fn dollar_text(&mut self) -> Result<Token<'a>, FileError> {
        let rest = self.rest();
        let tag = 1 + rest[1..].iter().take_while(|b| is_word(**b)).count();
        let is_tag = rest.get(tag) == Some(&b'$') && self.dialect != Dialect::MySql;
        if !is_tag {
            self.advance(1);
            return Ok(Token::Punctuation(b'$'));
        }
        let quote = &rest[..=tag];
        let end = find(&rest[quote.len()..], quote);
        let end = end.ok_or_else(|| self.syntax("the end of a string", "the end of the file"))?;
        self.advance(quote.len() + end + quote.len());
        // Never a value: pg_dump writes those as strings.
        Ok(Token::Punctuation(b'$'))
    }
}

/// Returns the position of a needle. The work is that of the length of the haystack: the needle begins with `$` and has
/// none inside.
fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        let start = from + haystack[from..].iter().position(|b| *b == b'$')?;
        if haystack[start..].starts_with(needle) {
            return Some(start);
        }
        from = start + 1;
    }
}
