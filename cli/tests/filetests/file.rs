//! One filetest: verb, settings, input, expectation.

const EXPECT: &str = "; ==== expect";

/// A parsed file.
pub struct TestFile<'t> {
    /// Everything up to the expectation's mark.
    pub input: &'t str,
    /// First word after `test`.
    pub verb: &'t str,
    /// What follows the verb.
    pub arguments: &'t str,
    /// Settings: `; key value` lines before the input.
    settings: Vec<(&'t str, &'t str)>,
    /// The expected output.
    pub expected: String,
}

impl<'t> TestFile<'t> {
    /// Parses the text of a file.
    ///
    /// # Errors
    /// When the verb is missing.
    pub fn parse(text: &'t str) -> Result<TestFile<'t>, String> {
        let at = text.lines().scan(0, |offset, line| {
            let start = *offset;
            *offset += line.len() + 1;
            Some((start, line))
        });
        let mark = at.filter(|(_, line)| line.trim_end() == EXPECT).map(|(start, _)| start).next();
        let (input, rest) = text.split_at(mark.unwrap_or(text.len()));
        let expected: Vec<&str> = rest
            .lines()
            .skip(1)
            .filter_map(|l| l.strip_prefix(';'))
            .map(|l| l.strip_prefix(' ').unwrap_or(l))
            .collect();
        let header = input.lines().take_while(|l| l.starts_with(';')).map(|l| l.trim_start_matches(';').trim());
        let settings: Vec<(&str, &str)> =
            header.map(|l| l.split_once(' ').unwrap_or((l, ""))).map(|(k, v)| (k, v.trim())).collect();
        let test = settings.iter().find(|s| s.0 == "test").ok_or("the first line must be `; test VERB`")?.1;
        let (verb, arguments) = test.split_once(' ').unwrap_or((test, ""));
        Ok(TestFile { input, verb, arguments: arguments.trim(), settings, expected: expected.join("\n") })
    }
    /// A setting of the header.
    pub fn setting(&self, key: &str) -> Option<&'t str> {
        self.settings.iter().find(|s| s.0 == key).map(|s| s.1)
    }
    /// The file's text with `output` as its expectation.
    pub fn with_expectation(&self, output: &str) -> String {
        let mut out = format!("{}\n\n{EXPECT}\n", self.input.trim_end());
        for line in output.lines() {
            out.push_str(if line.is_empty() { ";" } else { "; " });
            out.push_str(line);
            out.push('\n');
        }
        out
    }
}
