//! The commands that make what `inrush serve` reads.
//!
//! `import` prints a config file, `password` a line of a file with passwords. `precompress` writes compressed files beside
//! a site's own.

pub mod import;
pub mod password;
pub mod precompress;
