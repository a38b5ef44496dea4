//! libfdm, installed by its own script, and programs compiled against it.

use std::path::{Path, PathBuf};

use base::Nanos;
use sys::process::{Program, find_program};
use tempfile::TempDir;

/// The form of the library that a program links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linked {
    Shared,
    Static,
}

/// A folder with an installed library.
pub struct Installation {
    prefix: TempDir,
}

impl Installation {
    pub fn new() -> Installation {
        let prefix = tempfile::tempdir().unwrap();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/install.sh");
        output("sh", &[script, prefix.path().to_str().unwrap(), archive().to_str().unwrap()]);
        Installation { prefix }
    }

    /// The shared library under the name that programs look for at run time.
    pub fn library(&self) -> PathBuf {
        self.prefix.path().join("lib/libfdm.so.1")
    }

    /// Asserts that the header is a translation unit without warnings.
    pub fn accepts_header(&self, compiler: &str, language: &[&str]) {
        let header = self.prefix.path().join("include/fdm.h");
        // Compilers warn of a header that is compiled by itself, so an empty unit includes it.
        let unit = ["-include", header.to_str().unwrap(), "/dev/null"];
        let strict = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only"];
        output(compiler, &[language, &strict, &unit].concat());
    }

    /// The names that the header declares: the words before an argument list or at the end of an `extern`.
    pub fn declared(&self) -> Vec<String> {
        let header = std::fs::read_to_string(self.prefix.path().join("include/fdm.h")).unwrap();
        let declarations = header.lines().filter_map(|line| {
            let line = line.strip_prefix("extern ").unwrap_or(line).strip_prefix("int ")?;
            line.split(['(', ';']).next().map(str::to_owned)
        });
        declarations.collect()
    }

    /// Compiles a source of the repository without warnings, and returns the program.
    pub fn compile(&self, source: &str, linked: Linked) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(source);
        let program =
            self.prefix.path().join(format!("{}-{linked:?}", source.file_stem().unwrap().display()));
        let mut arguments: Vec<String> =
            ["-std=gnu11", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"].map(str::to_owned).to_vec();
        arguments.extend([program.display().to_string(), source.display().to_string()]);
        arguments.extend(self.flags(linked));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        output(&compiler(), &arguments);
        program
    }

    /// The flags that pkg-config reports for the installation. Without pkg-config, the flags that it would
    /// report.
    fn flags(&self, linked: Linked) -> Vec<String> {
        let lib = self.prefix.path().join("lib").display().to_string();
        let flags = if find_program("pkg-config").is_some() {
            let path = format!("PKG_CONFIG_PATH={lib}/pkgconfig");
            let how = if linked == Linked::Static { "--static" } else { "--shared" };
            output("env", &[&path, "pkg-config", how, "--cflags", "--libs", "fdm"])
        } else {
            println!("skipped: flags by pkg-config: it is not installed");
            let include = self.prefix.path().join("include");
            format!("-I{} -L{lib} -lfdm -lgcc_s -lutil -lrt -lpthread -lm -ldl -lc", include.display())
        };
        let mut flags: Vec<String> = flags.split_whitespace().map(str::to_owned).collect();
        match linked {
            Linked::Shared => flags.push(format!("-Wl,-rpath,{lib}")),
            Linked::Static => flags.iter_mut().filter(|flag| *flag == "-lfdm").for_each(|flag| {
                *flag = "-l:libfdm.a".to_owned();
            }),
        }
        flags
    }
}

/// The command that runs a program under valgrind, with every leak an error. Prints a line and returns `None`
/// if there is no valgrind.
pub fn under_valgrind(program: &Path) -> Option<(String, Vec<String>)> {
    let Some(valgrind) = find_program("valgrind") else {
        println!("skipped: {} under valgrind: it is not installed", program.display());
        return None;
    };
    let arguments = [
        "-q",
        "--error-exitcode=9",
        "--leak-check=full",
        "--show-leak-kinds=all",
        "--errors-for-leak-kinds=all",
        program.to_str().unwrap(),
    ];
    Some((valgrind.to_str().unwrap().to_owned(), arguments.map(str::to_owned).to_vec()))
}

/// Runs a program to its end, asserts success, and returns the program's output.
pub fn output(program: &str, arguments: &[&str]) -> String {
    let child = Program::new(program).arguments(arguments).start().unwrap();
    let output = child.output(Nanos::from_millis(100), || true).unwrap();
    let (said, complained) = (text(output.stdout), text(output.stderr));
    assert!(output.exit.status.success(), "{program} {arguments:?}: {:?}\n{complained}", output.exit.status);
    said
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).into_owned()
}

fn compiler() -> String {
    std::env::var("CC").unwrap_or_else(|_| "cc".to_owned())
}

/// The static library, which cargo has put beside this test. There may be more, of other sets of features and
/// older compilers. The newest is built from the present source, because this test's own is.
fn archive() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let beside = std::fs::read_dir(test.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
    let archives = beside.filter(|path| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("libfdm") && name.ends_with(".a")
    });
    let newest = archives.max_by_key(|path| path.metadata().unwrap().modified().unwrap());
    newest.unwrap_or_else(|| panic!("no libfdm*.a beside {}", test.display()))
}
