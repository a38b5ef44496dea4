//! The flags of `inrush password`.

use clap::Args;

/// Print a line for a file with passwords.
#[derive(Args, Debug)]
pub struct PasswordFlags {
    /// Name of the user
    #[arg(value_parser = name)]
    pub name: String,
}

fn name(text: &str) -> Result<String, String> {
    if text.is_empty()
        || text.starts_with('#')
        || text.contains(|letter: char| letter == ':' || letter.is_control())
    {
        return Err("expected a name without a colon, and not beginning with #".to_owned());
    }
    Ok(text.to_owned())
}
