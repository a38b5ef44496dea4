//! Lists of CPUs, for `serve` and `load`.

use std::fmt;

/// A list of CPU numbers.
#[derive(Clone, Debug)]
pub struct CpuList(pub Vec<usize>);

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.0.iter().map(usize::to_string).collect();
        f.write_str(&numbers.join(","))
    }
}

/// Parses numbers and ranges of CPUs, separated by commas.
pub fn cpu_list(text: &str) -> Result<CpuList, String> {
    let wrong = || "expected CPUs such as 0, 0,2 or 0-3".to_owned();
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) =
            (first.trim().parse().map_err(|_| wrong())?, last.trim().parse().map_err(|_| wrong())?);
        if first > last || last >= 1024 {
            return Err(wrong());
        }
        cpus.extend(first..=last);
    }
    Ok(CpuList(cpus))
}
