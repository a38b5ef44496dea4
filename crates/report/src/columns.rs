//! Columns of text, aligned for a terminal.

/// Writes rows of cells as lines, with two spaces between columns. The first column and those in `text_columns` hold words
/// and are aligned to the left. All others hold numbers and are aligned to the right. Every row has as many cells as
/// the first.
pub fn aligned(rows: &[impl AsRef<[String]>], text_columns: &[usize]) -> String {
    let width = |cell: &String| cell.chars().count();
    let mut widths: Vec<usize> = Vec::new();
    for row in rows {
        widths.resize(widths.len().max(row.as_ref().len()), 0);
        for (widest, cell) in widths.iter_mut().zip(row.as_ref()) {
            *widest = width(cell).max(*widest);
        }
    }
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, widest)) in row.as_ref().iter().zip(&widths).enumerate() {
            if column > 0 {
                line.push_str("  ");
            }
            line.push_str(&match column == 0 || text_columns.contains(&column) {
                true => format!("{cell:<widest$}"),
                false => format!("{cell:>widest$}"),
            });
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["name", "x"], ["long name", "1.25"], ["a", ""]].map(|row| row.map(str::to_owned));
        assert_eq!(aligned(&rows, &[]), "name          x\nlong name  1.25\na\n");
        assert_eq!(aligned(&rows, &[1]), "name       x\nlong name  1.25\na\n");
        assert_eq!(aligned(&[] as &[[String; 1]], &[]), "");
    }
}
