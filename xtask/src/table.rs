//! Text tables: the first column to the left, the others to the right.

/// Rows of cells, the first of them the heading, as aligned lines.
pub fn aligned<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let mut text = String::new();
    for row in rows {
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            match column {
                0 => text.push_str(&format!("{cell:<width$}")),
                _ => text.push_str(&format!("  {cell:>width$}")),
            }
        }
        text.truncate(text.trim_end().len());
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
        assert_eq!(aligned(&rows), "name          x\nlong name  1.25\na\n");
    }
}
