//! A dump in SQL: INSERT and COPY of the table `subscriber`. Every other statement is skipped.

use super::lexer::{Dialect, Lexer, Token};
use super::literal;
use super::row::{Columns, MAX_COLUMNS, Value};
use crate::MAX_LINE;
use crate::error::FileError;
use crate::found::{Found, Position, Reason, Refusal, User};
use std::sync::Arc;

/// The table that is read, in any database or schema.
const TABLE: &[u8] = b"subscriber";

/// Words of an INSERT before the name of the table, in the dialects.
const BEFORE_TABLE: [&str; 11] = [
    "INTO",
    "OR",
    "REPLACE",
    "IGNORE",
    "ABORT",
    "FAIL",
    "ROLLBACK",
    "DELAYED",
    "LOW_PRIORITY",
    "HIGH_PRIORITY",
    "ONLY",
];
/// Words that begin something else than a column in CREATE TABLE.
const NO_COLUMN: [&str; 11] = [
    "PRIMARY",
    "UNIQUE",
    "KEY",
    "INDEX",
    "CONSTRAINT",
    "FOREIGN",
    "CHECK",
    "FULLTEXT",
    "SPATIAL",
    "EXCLUDE",
    "LIKE",
];

pub(super) fn read(file: &Arc<str>, bytes: &[u8], found: &mut Found) -> Result<(), FileError> {
    let mut dump = Dump { lexer: Lexer::new(file, bytes), created: None, seen: false, found };
    while dump.statement()? {}
    if !dump.seen {
        let expected = "an INSERT or COPY of the table `subscriber`";
        return Err(FileError::Format { at: dump.lexer.position(), expected });
    }
    Ok(())
}

struct Dump<'a, 'f> {
    lexer: Lexer<'a>,
    /// The columns that CREATE TABLE has.
    created: Option<Vec<&'a [u8]>>,
    /// Whether there is the table.
    seen: bool,
    found: &'f mut Found,
}

impl<'a> Dump<'a, '_> {
    /// Reads a statement. Returns false at the end.
    fn statement(&mut self) -> Result<bool, FileError> {
        let token = self.lexer.token()?;
        match token {
            Token::End => return Ok(false),
            Token::Punctuation(b';') => return Ok(true),
            // A command of psql, such as \connect.
            Token::Punctuation(b'\\') => {
                self.lexer.take_line();
                return Ok(true);
            }
            _ => {}
        }
        if token.is("INSERT") || token.is("REPLACE") {
            self.insert()?;
        } else if token.is("COPY") {
            self.copy()?;
        } else if token.is("CREATE") {
            self.create()?;
        } else if token.is("SET") {
            self.set()?;
        } else {
            if token.is("PRAGMA") {
                self.lexer.note(Dialect::Sqlite);
            }
            self.skip_statement()?;
        }
        Ok(true)
    }

    fn skip_statement(&mut self) -> Result<(), FileError> {
        while !matches!(self.lexer.token()?, Token::Punctuation(b';') | Token::End) {}
        Ok(())
    }

    /// `SET standard_conforming_strings = on` is in every dump of PostgreSQL.
    fn set(&mut self) -> Result<(), FileError> {
        let name = self.lexer.token()?;
        if !name.is("standard_conforming_strings") {
            return match name {
                Token::Punctuation(b';') | Token::End => Ok(()),
                _ => self.skip_statement(),
            };
        }
        self.lexer.note(Dialect::Postgres);
        let _equals = self.lexer.token()?;
        if self.lexer.token()?.is("off") && self.lexer.dialect == Dialect::Postgres {
            self.lexer.dialect = Dialect::PostgresEscaped;
        }
        self.skip_statement()
    }

    /// Reads the name of a table, of which `token` is the first part. Returns whether it is the one that is read, and
    /// the token behind it.
    fn table(&mut self, mut token: Token<'a>) -> Result<(bool, Token<'a>), FileError> {
        let mut is_table = false;
        loop {
            match token {
                Token::Word(name) | Token::Name(name) => {
                    is_table = name.eq_ignore_ascii_case(TABLE);
                }
                other => return Ok((is_table, other)),
            }
            token = self.lexer.token()?;
            if token != Token::Punctuation(b'.') {
                return Ok((is_table, token));
            }
            token = self.lexer.token()?;
        }
    }

    /// Reads names between parentheses, behind the opening one.
    fn names(&mut self) -> Result<Vec<&'a [u8]>, FileError> {
        let mut names = Vec::new();
        loop {
            match self.lexer.token()? {
                Token::Word(name) | Token::Name(name) => names.push(name),
                _ => return Err(self.lexer.syntax("the name of a column", "something else")),
            }
            if names.len() > MAX_COLUMNS {
                return Err(self.too_many_columns());
            }
            match self.lexer.token()? {
                Token::Punctuation(b',') => {}
                Token::Punctuation(b')') => return Ok(names),
                _ => return Err(self.lexer.syntax("`,` or `)` after a column", "something else")),
            }
        }
    }

    fn too_many_columns(&self) -> FileError {
        FileError::Limit { at: self.lexer.position(), what: "columns", max: MAX_COLUMNS }
    }

    fn create(&mut self) -> Result<(), FileError> {
        let mut token = self.lexer.token()?;
        // As in CREATE TEMPORARY TABLE IF NOT EXISTS.
        while let Token::Word(_) = token
            && !token.is("TABLE")
        {
            token = self.lexer.token()?;
        }
        if !token.is("TABLE") {
            return match token {
                Token::Punctuation(b';') | Token::End => Ok(()),
                _ => self.skip_statement(),
            };
        }
        token = self.lexer.token()?;
        while token.is("IF") || token.is("NOT") || token.is("EXISTS") {
            token = self.lexer.token()?;
        }
        let (is_table, token) = self.table(token)?;
        match token {
            Token::Punctuation(b'(') if is_table => {
                self.created = Some(self.definitions()?);
                self.seen = true;
                self.skip_statement()
            }
            Token::Punctuation(b';') | Token::End => Ok(()),
            _ => self.skip_statement(),
        }
    }

    /// Reads the definitions of columns, keys and constraints up to the closing parenthesis. Returns the names of the
    /// columns.
    fn definitions(&mut self) -> Result<Vec<&'a [u8]>, FileError> {
        let mut names = Vec::new();
        let mut depth = 1_u32;
        let mut begins = true;
        while depth > 0 {
            let token = self.lexer.token()?;
            match token {
                Token::Name(name) if begins => names.push(name),
                Token::Word(name) if begins && !NO_COLUMN.iter().any(|w| token.is(w)) => {
                    names.push(name);
                }
                Token::Punctuation(b'(') => depth = depth.saturating_add(1),
                Token::Punctuation(b')') => depth -= 1,
                Token::End => {
                    return Err(self.lexer.syntax("`)`", "the end of the file"));
                }
                _ => {}
            }
            if names.len() > MAX_COLUMNS {
                return Err(self.too_many_columns());
            }
            begins = depth == 1 && token == Token::Punctuation(b',');
        }
        Ok(names)
    }

    /// Returns the columns of rows: those that are named with them, or those of the table.
    fn columns(&self, named: Option<&[&[u8]]>) -> Result<Columns, FileError> {
        let at = self.lexer.position();
        match named.or(self.created.as_deref()) {
            Some(names) => Columns::new(&at, names),
            None => Err(FileError::Format {
                at,
                expected: "the names of the columns, in the INSERT or in a CREATE TABLE before it",
            }),
        }
    }

    fn insert(&mut self) -> Result<(), FileError> {
        let mut token = self.lexer.token()?;
        while BEFORE_TABLE.iter().any(|word| token.is(word)) {
            token = self.lexer.token()?;
        }
        let (is_table, mut token) = self.table(token)?;
        if !is_table {
            return match token {
                Token::Punctuation(b';') | Token::End => Ok(()),
                _ => self.skip_statement(),
            };
        }
        self.seen = true;
        let mut named = None;
        if token == Token::Punctuation(b'(') {
            named = Some(self.names()?);
            token = self.lexer.token()?;
        }
        while token.is("OVERRIDING") || token.is("SYSTEM") || token.is("USER") || token.is("VALUE")
        {
            // MySQL has VALUE for VALUES.
            let was_value = token.is("VALUE");
            token = self.lexer.token()?;
            if was_value && token == Token::Punctuation(b'(') {
                return self.rows(named.as_deref(), token);
            }
        }
        if !token.is("VALUES") {
            let at = self.lexer.position();
            self.found.add(Err(Refusal { at, name: None, reason: Reason::Query }))?;
            return match token {
                Token::Punctuation(b';') | Token::End => Ok(()),
                _ => self.skip_statement(),
            };
        }
        let token = self.lexer.token()?;
        self.rows(named.as_deref(), token)
    }

    /// Reads rows, of which `token` is the first parenthesis, up to the end of the statement.
    fn rows(&mut self, named: Option<&[&[u8]]>, token: Token<'a>) -> Result<(), FileError> {
        let columns = self.columns(named)?;
        let mut token = token;
        let mut values = Vec::new();
        loop {
            if token != Token::Punctuation(b'(') {
                return Err(self.lexer.syntax("`(` before a row", "something else"));
            }
            let at = self.lexer.position();
            self.row(&mut values)?;
            self.found.add(columns.user(at, &values))?;
            match self.lexer.token()? {
                Token::Punctuation(b',') => token = self.lexer.token()?,
                Token::Punctuation(b';') | Token::End => return Ok(()),
                // Such as ON CONFLICT DO NOTHING.
                Token::Word(_) => return self.skip_statement(),
                _ => return Err(self.lexer.syntax("`,` or `;` after a row", "something else")),
            }
        }
    }

    /// Reads the values of a row, behind the opening parenthesis.
    fn row(&mut self, values: &mut Vec<Value<'a>>) -> Result<(), FileError> {
        values.clear();
        let mut depth = 1_u32;
        let mut value: Option<Value<'a>> = None;
        // The word that precedes a string and names its character set, as in _utf8mb4'..'.
        let mut introduced = false;
        loop {
            let token = self.lexer.token()?;
            match token {
                Token::Punctuation(b',') if depth == 1 => {
                    values.push(value.take().unwrap_or(Value::Expression));
                    introduced = false;
                    if values.len() >= MAX_COLUMNS {
                        return Err(self.too_many_columns());
                    }
                    continue;
                }
                Token::Punctuation(b')') if depth == 1 => {
                    values.push(value.take().unwrap_or(Value::Expression));
                    return Ok(());
                }
                Token::End => return Err(self.lexer.syntax("`)`", "the end of the file")),
                Token::Punctuation(b'(') => depth = depth.saturating_add(1),
                Token::Punctuation(b')') => depth -= 1,
                _ => {}
            }
            value = Some(match (value, token) {
                (None, Token::Text(text)) => literal::text(text),
                (None, Token::Word(word)) if word.eq_ignore_ascii_case(b"NULL") => Value::Null,
                (None, Token::Word(word)) if word.iter().all(u8::is_ascii_digit) => {
                    Value::Text(word.into())
                }
                (None, Token::Word(word)) if word.starts_with(b"_") => {
                    introduced = true;
                    Value::Expression
                }
                (Some(_), Token::Text(text)) if introduced => {
                    introduced = false;
                    literal::text(text)
                }
                _ => {
                    introduced = false;
                    Value::Expression
                }
            });
        }
    }

    fn copy(&mut self) -> Result<(), FileError> {
        self.lexer.note(Dialect::Postgres);
        let token = self.lexer.token()?;
        let (is_table, mut token) = self.table(token)?;
        let mut named = None;
        if is_table && token == Token::Punctuation(b'(') {
            named = Some(self.names()?);
            token = self.lexer.token()?;
        }
        let (mut from, mut from_input, mut plain) = (false, false, true);
        while !matches!(token, Token::Punctuation(b';') | Token::End) {
            plain &= !from_input;
            from_input |= from && token.is("STDIN");
            from = token.is("FROM");
            token = self.lexer.token()?;
        }
        if !from_input {
            return Ok(());
        }
        // The data begin in the next line.
        self.lexer.take_line();
        let columns = match is_table {
            true if !plain => {
                let expected = "COPY .. FROM stdin without options, as pg_dump writes it";
                return Err(self.lexer.syntax(expected, "options"));
            }
            true => {
                self.seen = true;
                Some(self.columns(named.as_deref())?)
            }
            false => None,
        };
        while let Some(line) = self.lexer.take_line() {
            if line == b"\\." {
                return Ok(());
            }
            if let Some(columns) = &columns {
                let at = self.lexer.position();
                self.found.add(copied(at, columns, line)?)?;
            }
        }
        Err(self.lexer.syntax("`\\.` after the rows of a COPY", "the end of the file"))
    }
}

fn copied(
    at: Position,
    columns: &Columns,
    line: &[u8],
) -> Result<Result<User, Refusal>, FileError> {
    if line.len() > MAX_LINE {
        return Err(FileError::Limit { at, what: "bytes of a line", max: MAX_LINE });
    }
    let fields = line.split(|b| *b == b'\t').take(MAX_COLUMNS + 1);
    let values: Vec<Value<'_>> = fields.map(literal::copied).collect();
    Ok(columns.user(at, &values))
}
