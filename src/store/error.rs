//! Why the store cannot do something.

use std::path::PathBuf;

/// Why the store cannot do something.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Not readable as a database, or damaged.
    #[error("database {path}: {reason}; nothing was changed: restore a copy or move the file away", path = path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// SQLite's word.
        reason: String,
    },
    /// Somebody else's.
    #[error("database {path}: made by another program; nothing was changed", path = path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// From the future.
    #[error("database {path}: made by a newer version (format {found}, this version knows up to {known}); nothing was changed", path = path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The latest format of this version.
        known: i64,
    },
    /// Cannot be read or written now; what is new lives in memory.
    #[error("database {path}: {reason}", path = path.display())]
    Unavailable {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// More is waiting than the disk takes.
    #[error("the store's queue is full")]
    Overloaded,
    /// The disk did not answer in time; the event is still queued.
    #[error("the store did not answer in time")]
    Late,
    /// The writer is gone.
    #[error("the store is closed")]
    Closed,
}
