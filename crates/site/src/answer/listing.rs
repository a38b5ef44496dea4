//! The page that lists a folder.
//!
//! Owns the choice of names and the HTML: names in the order of their bytes, folders with a slash, no
//! scripts. It lists what the site would serve, without dot-files. A symbolic link is listed as its target,
//! if the target is inside the root.
//!
//! Invariant: a link on the page is the name in percent-escapes behind `./`. No name is read as a scheme, a
//! host, a query or a parent folder.

use std::ffi::CStr;

use rustix::fs::{Dir, FileType};

use crate::path::{self, SitePath};
use crate::root::{Directory, LookupError, Reach};

/// Most names that are read for a page. A folder with more is not listed as a whole.
const MOST_NAMES: usize = 4096;

/// Reads a folder and makes its page. Calls `openat2` and `getdents64`, and `fstat` for symbolic links.
///
/// # Errors
/// The folder does not exist, or cannot be read.
pub(crate) fn page(directory: &Directory, path: &SitePath, reach: Reach) -> Result<String, LookupError> {
    let folder = directory.open_folder(&path.relative, reach)?;
    let (mut names, mut is_whole) = (Vec::new(), true);
    for entry in Dir::new(folder)? {
        let entry = entry?;
        if names.len() == MOST_NAMES {
            is_whole = false;
            break;
        }
        if let Some(name) = shown(directory, path, entry.file_name(), entry.file_type(), reach) {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(render(path, &names, is_whole))
}

/// The name as it is listed, with a slash for a folder; `None` for a name that is not served.
fn shown(
    directory: &Directory,
    path: &SitePath,
    name: &CStr,
    file_type: FileType,
    reach: Reach,
) -> Option<Vec<u8>> {
    let name = name.to_bytes();
    let is_own = name == b"." || name == b"..";
    if is_own || (name.starts_with(b".") && !reach.dot_files) {
        return None;
    }
    let is_folder = match file_type {
        FileType::RegularFile => false,
        FileType::Directory => true,
        // Some file systems tell no types.
        FileType::Symlink | FileType::Unknown => {
            let below = if path.relative.is_empty() { &[][..] } else { b"/" };
            match directory.examine(&[&path.relative, below, name].concat(), reach) {
                Ok(_) => false,
                Err(LookupError::IsDirectory) => true,
                Err(_) => return None,
            }
        }
        _ => return None,
    };
    Some(if is_folder { [name, b"/"].concat() } else { name.to_vec() })
}

fn render(path: &SitePath, names: &[Vec<u8>], is_whole: bool) -> String {
    let mut page = String::with_capacity(256 + 64 * names.len());
    let mut title = String::from("/");
    if !path.relative.is_empty() {
        escape(&String::from_utf8_lossy(&path.relative), &mut title);
        title.push('/');
    }
    page.push_str("<!DOCTYPE html>\n<html>\n<head>\n<meta charset=\"utf-8\">\n");
    page.push_str("<meta name=\"viewport\" content=\"width=device-width\">\n");
    page.extend(["<title>", &title, "</title>\n</head>\n<body>\n<h1>", &title, "</h1>\n<ul>\n"]);
    if !path.relative.is_empty() {
        page.push_str("<li><a href=\"../\">../</a></li>\n");
    }
    for name in names {
        let mut link = String::from("./");
        path::encode(name, &mut link);
        page.push_str("<li><a href=\"");
        escape(&link, &mut page);
        page.push_str("\">");
        escape(&String::from_utf8_lossy(name), &mut page);
        page.push_str("</a></li>\n");
    }
    page.push_str("</ul>\n");
    if !is_whole {
        page.push_str("<p>This folder has more files than are listed.</p>\n");
    }
    page.push_str("</body>\n</html>\n");
    page
}

/// Appends text with the characters escaped that HTML gives a meaning.
fn escape(text: &str, out: &mut String) {
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Controls have no meaning in HTML and would spoil a terminal.
            letter if letter.is_control() => out.push(char::REPLACEMENT_CHARACTER),
            letter => out.push(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn listed(names: &[&[u8]]) -> String {
        let path = path::normalise("/a%20%3Cb%3E/", false).unwrap();
        render(&path, &names.iter().map(|name| name.to_vec()).collect::<Vec<_>>(), true)
    }

    #[test]
    fn names_and_title_are_escaped() {
        let page = listed(&[b"<script>alert(1)</script>.html", b"a&b'\"c", b"x\xff\n"]);
        assert!(page.contains("<h1>/a &lt;b&gt;/</h1>"), "{page}");
        assert!(page.contains(">&lt;script&gt;alert(1)&lt;/script&gt;.html</a>"), "{page}");
        assert!(page.contains("href=\"./a&amp;b&#39;%22c\">a&amp;b&#39;&quot;c</a>"), "{page}");
        assert!(page.contains("href=\"./x%FF%0A\">x\u{fffd}\u{fffd}</a>"), "{page}");
        assert!(!page.contains("<script"), "{page}");
    }

    #[test]
    fn no_link_is_a_scheme_a_host_or_a_query() {
        let page = listed(&[b"javascript:x", b"a?b#c", b"%2e%2e", b"\\\\evil", b"folder:/"]);
        for link in ["./javascript:x", "./a%3Fb%23c", "./%252e%252e", "./%5C%5Cevil", "./folder:/"] {
            assert!(page.contains(&format!("href=\"{link}\"")), "{link}: {page}");
        }
    }

    #[test]
    fn a_folder_that_is_too_long_says_so() {
        let path = path::normalise("/", false).unwrap();
        assert!(!render(&path, &[], true).contains("more files"));
        assert!(!render(&path, &[], true).contains("../"));
        assert!(render(&path, &[], false).contains("more files"));
    }

    proptest! {
        #[test]
        fn a_link_leads_to_its_name(name in proptest::collection::vec(1u8..=255, 1..12)) {
            prop_assume!(!name.contains(&b'/') && name != b"." && name != b"..");
            let mut link = String::from("/./");
            path::encode(&name, &mut link);
            prop_assert_eq!(path::normalise(&link, true).unwrap().relative, name);
        }
    }
}
