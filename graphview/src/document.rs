//! A report for people: texts and tables.

/// A part of a document for people.
#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    /// One line or more.
    Text(String),
    /// A table.
    Table {
        /// Titles of the columns.
        header: Vec<String>,
        /// Its cells.
        rows: Vec<Vec<String>>,
    },
}

/// A report.
#[derive(Clone, Debug, Default)]
pub struct Document {
    /// Its parts.
    pub blocks: Vec<Block>,
}

impl Document {
    /// Adds a text.
    pub fn say(&mut self, text: impl Into<String>) {
        self.blocks.push(Block::Text(text.into()));
    }
    /// Adds a table.
    pub fn table(&mut self, header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) {
        let header = header.iter().map(|h| h.to_string()).collect();
        self.blocks.push(Block::Table { header, rows: rows.into_iter().collect() });
    }
    /// All of it as plain text, columns under each other.
    pub fn text(&self) -> String {
        self.blocks.iter().map(Block::text).collect()
    }
}

impl Block {
    fn text(&self) -> String {
        let (header, rows) = match self {
            Block::Text(text) => return format!("{text}\n"),
            Block::Table { header, rows } => (header, rows),
        };
        let lines = || std::iter::once(header).chain(rows);
        let wide = |column: usize| lines().filter_map(|r| r.get(column)).map(|c| c.chars().count()).max().unwrap_or(0);
        let line = |cells: &Vec<String>| {
            let cells: Vec<String> = cells.iter().enumerate().map(|(i, c)| format!("{c:w$}", w = wide(i))).collect();
            format!(" {}\n", cells.join("  ").trim_end())
        };
        lines().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_under_each_other() {
        let mut d = Document::default();
        d.say("two");
        d.table(&["a", "long"], [vec!["wide".into(), "1".into()], vec!["x".into(), "23".into()]]);
        assert_eq!(d.text(), "two\n a     long\n wide  1\n x     23\n");
    }
}
