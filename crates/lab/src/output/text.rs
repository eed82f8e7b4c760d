//! Tables and numbers for a terminal.

/// Returns whether a column holds numbers, with or without text after them.
pub(super) fn is_numbers(rows: &[Vec<String>], column: usize) -> bool {
    let begins_as_one = |cell: &String| {
        cell.chars().next().is_none_or(|c| c.is_ascii_digit() || matches!(c, '-' | '+'))
    };
    rows.iter().filter_map(|row| row.get(column)).all(begins_as_one)
}

/// Aligns columns: words left, numbers right.
pub fn columns(head: &[String], rows: &[Vec<String>]) -> String {
    let width = |text: &str| text.chars().count();
    let widths: Vec<usize> = (0..head.len())
        .map(|i| {
            let cells = rows.iter().filter_map(|row| row.get(i)).map(|cell| width(cell));
            cells.chain([width(&head[i])]).max().unwrap_or(0)
        })
        .collect();
    let words: Vec<bool> = (0..head.len()).map(|i| i == 0 || !is_numbers(rows, i)).collect();
    let mut out = String::new();
    for row in std::iter::once(head).chain(rows.iter().map(Vec::as_slice)) {
        let mut line = String::new();
        for (i, (cell, column)) in row.iter().zip(&widths).enumerate() {
            let pad = " ".repeat(column - width(cell));
            let gap = if i == 0 { "" } else { "  " };
            line += gap;
            line += &if words[i] { format!("{cell}{pad}") } else { format!("{pad}{cell}") };
        }
        out += line.trim_end();
        out.push('\n');
    }
    out
}

/// Formats a number with about six significant digits, and no more decimals than needed.
pub fn figure(value: f64) -> String {
    if !value.is_finite() {
        return "-".into();
    }
    if value == value.trunc() && value.abs() < 1e9 {
        return format!("{value}");
    }
    let size = value.abs();
    if !(1e-6..1e9).contains(&size) {
        return format!("{value:.4e}");
    }
    let before = size.log10().floor() as i32 + 1;
    let digits = (6 - before).clamp(0, 9) as usize;
    let text = format!("{value:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').into(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_significant_digits() {
        for (value, text) in [
            (1569.0, "1569"),
            (1.930832, "1.93083"),
            (0.010308, "0.010308"),
            (199_586.123, "199586"),
            (1e-9, "1.0000e-9"),
            (f64::NAN, "-"),
            (0.0, "0"),
            (2.5e12, "2.5000e12"),
        ] {
            assert_eq!(figure(value), text);
        }
    }

    #[test]
    fn columns_are_aligned() {
        let row = |a: &str, b: &str| vec![a.to_string(), b.to_string()];
        let text = columns(&row("flow", "sent"), &[row("µ", "7"), row("long-name", "12345")]);
        assert_eq!(text, "flow        sent\nµ              7\nlong-name  12345\n");
        let text = columns(&row("flow", "why"), &[row("a", "queue full"), row("b", "loss")]);
        assert_eq!(text, "flow  why\na     queue full\nb     loss\n");
    }
}
