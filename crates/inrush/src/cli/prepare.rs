//! The flags of the commands that make what `inrush serve` reads.

mod import;
mod password;
mod precompress;

pub use import::{ImportCommand, ImportFlags};
pub use password::PasswordFlags;
pub use precompress::PrecompressFlags;
