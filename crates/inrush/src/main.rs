//! The program `inrush`: the command line of the library beside it.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    inrush::main()
}
