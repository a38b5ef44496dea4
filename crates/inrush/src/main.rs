//! Inrush.
fn main() {}
