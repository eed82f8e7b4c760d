//! The tables of the file. Keys and values are opaque bytes here.

use redb::TableDefinition;

/// Version of the table format described here.
pub(super) const FORMAT: &[u8] = b"1";

pub(super) type Bytes = TableDefinition<'static, &'static [u8], &'static [u8]>;

/// Maps `realm NUL user` to hashed passwords.
pub(super) const USERS: Bytes = TableDefinition::new("users");
/// Maps an address-of-record to its location record.
pub(super) const BINDINGS: Bytes = TableDefinition::new("bindings");
/// Groups of changes that are not yet in `bindings`, in the order they were made.
pub(super) const JOURNAL: TableDefinition<'static, u64, &'static [u8]> =
    TableDefinition::new("journal");
/// Maps a user with its domain to the permission of its home to have it registered here.
pub(super) const GRANTS: Bytes = TableDefinition::new("grants");
/// Maps the id of a router of a mesh to what it remembers of short numbers. Never part of a backup: an old copy would make
/// numbers collide.
pub(super) const NUMBERS: Bytes = TableDefinition::new("numbers");
/// Format version, main domain and keys.
pub(super) const META: Bytes = TableDefinition::new("meta");

/// One of the tables.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Table {
    Users,
    Bindings,
    Grants,
    Numbers,
    Meta,
}

impl Table {
    pub(super) const fn definition(self) -> Bytes {
        match self {
            Table::Users => USERS,
            Table::Bindings => BINDINGS,
            Table::Grants => GRANTS,
            Table::Numbers => NUMBERS,
            Table::Meta => META,
        }
    }
}
