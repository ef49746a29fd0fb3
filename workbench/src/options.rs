//! Tables of options. A row has all that is known of an option: its name, its type, how its text is read and written,
//! its default, its place in help, its sentence. [`options!`](crate::options!) makes a struct and its table of the
//! rows.
//!
//! The command's options, `--sweep`, reproducers, and the keys of C and Python are read from the tables.

use std::fmt::Display;
use std::path::{Path, PathBuf};

/// The group of options that one stands in, and what it applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heading {
    /// Where a model runs.
    Device,
    /// Loading of a model.
    Model,
    /// Compilation.
    Compiler,
    /// Files that compilations and runs read or write beside the model: they change no result.
    Files,
    /// Values for the model's inputs.
    Inputs,
    /// One thing alone.
    Own,
}

/// A row: an option of the struct `T`.
pub struct Opt<T> {
    /// The name of the field; the command writes it with dashes.
    pub name: &'static str,
    /// The name on the command line, if it is another one.
    pub long: &'static str,
    /// One letter for it.
    pub short: Option<char>,
    /// The group it stands in.
    pub heading: Heading,
    /// Its sentence in help.
    pub help: &'static str,
    /// The text of its default; empty where there is none.
    pub default: &'static str,
    /// The name of its value in help.
    pub value: &'static str,
    /// All texts that it takes; empty where there are other ones.
    pub choices: fn() -> Vec<&'static str>,
    /// The choices stand in no help.
    pub hides_choices: bool,
    /// A variable of the environment that gives it.
    pub env: Option<&'static str>,
    /// Refuses texts that its type would take.
    pub check: fn(&str) -> Result<(), String>,
    /// Several values stand in one text, between commas.
    pub listed: bool,
    /// So many words may be its value; of one with several each is a value.
    pub words: usize,
    /// It may be given again, and its values add up.
    pub many: bool,
    /// Its value is a file or a folder, or names one behind `@`.
    pub path: bool,
    /// It is given without a value.
    pub flag: bool,
    /// Takes the text of one value.
    pub read: fn(&mut T, &str) -> Result<(), String>,
    /// The texts of its values.
    pub texts: fn(&T) -> Vec<String>,
    /// Takes back what was given.
    pub reset: fn(&mut T),
}

impl<T> Opt<T> {
    /// Takes a text as it is given.
    ///
    /// # Errors
    /// The texts that the option takes.
    pub fn set(&self, to: &mut T, text: &str) -> Result<(), String> {
        let one = |to: &mut T, text: &str| {
            let choices = (self.choices)();
            if !choices.is_empty() && !choices.contains(&text) {
                return Err(format!("takes {}", choices.join(", ")));
            }
            (self.check)(text)?;
            (self.read)(to, text)
        };
        if !self.listed {
            return one(to, text);
        }
        (self.reset)(to);
        text.split(',').try_for_each(|t| one(to, t))
    }
    /// The texts with which [`Opt::set`] makes the same values.
    pub fn given(&self, of: &T) -> Vec<String> {
        let texts = (self.texts)(of);
        if self.listed && !texts.is_empty() { vec![texts.join(",")] } else { texts }
    }
    /// The option as a command line has it.
    pub fn written(&self) -> String {
        format!("--{}", self.long_name())
    }
    /// Its name on the command line, without dashes in front.
    pub fn long_name(&self) -> String {
        if self.long.is_empty() { self.name.replace('_', "-") } else { self.long.into() }
    }
    /// Its sentence in one line.
    pub fn sentence(&self) -> String {
        self.help.lines().map(str::trim).filter(|l| !l.is_empty()).collect::<Vec<_>>().join(" ")
    }
}

/// Options by name.
pub trait Tabled: Default + Clone + Send + Sync + 'static {
    /// The rows.
    fn rows() -> &'static [Opt<Self>];

    /// The row of that name, with dashes or without.
    fn row(name: &str) -> Option<&'static Opt<Self>> {
        Self::rows().iter().find(|o| o.name == name || o.long_name() == name)
    }
    /// The rows whose values are not the default's.
    fn changed(&self) -> impl Iterator<Item = &'static Opt<Self>> {
        let usual = Self::default();
        Self::rows().iter().filter(move |o| (o.texts)(self) != (o.texts)(&usual))
    }
    /// The options whose values are not the default's, by name, with their texts.
    fn pairs(&self) -> Vec<(String, Vec<String>)> {
        self.changed().map(|o| (o.name.to_string(), o.given(self))).collect()
    }
    /// Takes options by name, with their texts, as [`Tabled::pairs`] gives them.
    ///
    /// # Errors
    /// A name that there is not, a text that its option does not take.
    fn take(&mut self, pairs: &[(String, Vec<String>)]) -> Result<(), String> {
        for (name, texts) in pairs {
            let row = Self::row(name).ok_or_else(|| format!("there is no option `{name}`"))?;
            texts.iter().try_for_each(|t| row.set(self, t)).map_err(|why| format!("{}: {why}", row.written()))?;
        }
        Ok(())
    }
    /// As [`Tabled::words`], for a command line in another folder: files that are there get their whole path.
    fn words_anywhere(&self) -> Vec<String> {
        let mut out = self.clone();
        for row in self.changed().filter(|row| row.path) {
            let texts = row.given(self);
            (row.reset)(&mut out);
            // What was taken once is taken again.
            let _ = texts.iter().try_for_each(|t| row.set(&mut out, &anywhere(t)));
        }
        out.words()
    }
    /// The words of a command line that give the same options as `self`.
    fn words(&self) -> Vec<String> {
        let words = |o: &'static Opt<Self>| {
            let texts = o.given(self);
            texts.into_iter().flat_map(move |t| match () {
                () if o.flag => vec![o.written()],
                // Behind a blank it would be an option itself.
                () if t.starts_with('-') => vec![format!("{}={t}", o.written())],
                () => vec![o.written(), t],
            })
        };
        self.changed().flat_map(words).collect()
    }
}

/// The whole path of a file or folder that is there, also of one behind `@`.
pub fn anywhere(text: &str) -> String {
    let (mark, path) = text.strip_prefix('@').map_or(("", text), |path| ("@", path));
    let whole = Path::new(path).exists().then(|| std::path::absolute(path).ok()).flatten();
    whole.map_or(text.to_string(), |whole| format!("{mark}{}", whole.display()))
}

/// A type that options have.
pub trait Field {
    /// Values add up.
    const MANY: bool = false;
    /// There is no value to give.
    const FLAG: bool = false;
    /// Takes the text of one value.
    ///
    /// # Errors
    /// The texts that it takes.
    fn read(&mut self, text: &str) -> Result<(), String>;
    /// The texts of its values.
    fn texts(&self) -> Vec<String>;
}

impl Field for String {
    fn read(&mut self, text: &str) -> Result<(), String> {
        *self = text.into();
        Ok(())
    }
    fn texts(&self) -> Vec<String> {
        vec![self.clone()]
    }
}

impl Field for bool {
    const FLAG: bool = true;
    fn read(&mut self, text: &str) -> Result<(), String> {
        *self = text.parse().map_err(|_| "takes true or false".to_string())?;
        Ok(())
    }
    fn texts(&self) -> Vec<String> {
        self.then(|| "true".to_string()).into_iter().collect()
    }
}

/// A value with a text.
pub trait Value: Sized {
    /// Reads it.
    ///
    /// # Errors
    /// The texts that it takes.
    fn of(text: &str) -> Result<Self, String>;
    /// Writes it.
    fn text(&self) -> String;
}

macro_rules! numbers {
    ($($t:ty),*) => { $(
        impl Value for $t {
            fn of(text: &str) -> Result<$t, String> {
                text.parse().map_err(|_| "needs a number".to_string())
            }
            fn text(&self) -> String {
                self.to_string()
            }
        }
        impl Field for $t {
            fn read(&mut self, text: &str) -> Result<(), String> {
                *self = Value::of(text)?;
                Ok(())
            }
            fn texts(&self) -> Vec<String> {
                vec![self.text()]
            }
        }
    )* };
}
numbers!(u8, u32, u64, usize);

impl Value for f64 {
    fn of(text: &str) -> Result<f64, String> {
        text.parse().ok().filter(|v: &f64| v.is_finite()).ok_or_else(|| "needs a number".to_string())
    }
    fn text(&self) -> String {
        self.to_string()
    }
}
impl Value for String {
    fn of(text: &str) -> Result<String, String> {
        Ok(text.into())
    }
    fn text(&self) -> String {
        self.clone()
    }
}
impl Value for PathBuf {
    fn of(text: &str) -> Result<PathBuf, String> {
        Ok(text.into())
    }
    fn text(&self) -> String {
        self.display().to_string()
    }
}
/// `NAME=off` or `NAME=on`.
impl Value for (String, bool) {
    fn of(text: &str) -> Result<(String, bool), String> {
        match text.split_once('=') {
            Some((name, "off")) => Ok((name.to_string(), false)),
            Some((name, "on")) => Ok((name.to_string(), true)),
            _ => Err("give NAME=off or NAME=on".into()),
        }
    }
    fn text(&self) -> String {
        format!("{}={}", self.0, if self.1 { "on" } else { "off" })
    }
}

impl<V: Value> Field for Option<V> {
    fn read(&mut self, text: &str) -> Result<(), String> {
        *self = Some(V::of(text)?);
        Ok(())
    }
    fn texts(&self) -> Vec<String> {
        self.iter().map(Value::text).collect()
    }
}

impl<V: Value> Field for Vec<V> {
    const MANY: bool = true;
    fn read(&mut self, text: &str) -> Result<(), String> {
        self.push(V::of(text)?);
        Ok(())
    }
    fn texts(&self) -> Vec<String> {
        self.iter().map(Value::text).collect()
    }
}

/// No choices: every text that the type takes.
pub fn any() -> Vec<&'static str> {
    vec![]
}

/// Nothing more is refused.
///
/// # Errors
/// Never.
pub fn unchecked(_: &str) -> Result<(), String> {
    Ok(())
}

/// A number within `range`.
///
/// # Errors
/// The range.
pub fn within<N: std::str::FromStr + PartialOrd + Display>(text: &str, least: N, most: N) -> Result<(), String> {
    let inside = |n: &N| *n >= least && *n <= most;
    text.parse().ok().filter(inside).map(drop).ok_or_else(|| format!("needs a number from {least} to {most}"))
}

/// At least 1.
///
/// # Errors
/// Says so.
pub fn at_least_one(text: &str) -> Result<(), String> {
    text.parse().ok().filter(|n: &u64| *n > 0).map(drop).ok_or_else(|| "at least 1 is needed".to_string())
}

/// Declares a struct of options, and its table. A row is
///
/// ```text
/// /// Its sentence, which help shows.
/// name: Type = "default" in Heading { check: within_range, .. };
/// ```
///
/// with any field of [`Opt`](crate::options::Opt) in braces. Fields behind `also` are no options.
#[macro_export]
macro_rules! options {
    (
        $(#[$meta:meta])*
        pub struct $table:ident {
            $( $(#[doc = $help:literal])+ $name:ident: $ty:ty = $default:literal in $heading:ident
                $({ $($key:ident: $value:expr),* $(,)? })?; )*
        }
        $(also { $( $(#[$own_meta:meta])* $own:ident: $own_ty:ty, )* })?
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug)]
        pub struct $table {
            $( $(#[doc = $help])+ pub $name: $ty, )*
            $( $( $(#[$own_meta])* pub $own: $own_ty, )* )?
        }
        impl Default for $table {
            fn default() -> $table {
                let mut out = $table {
                    $( $name: Default::default(), )*
                    $( $( $own: Default::default(), )* )?
                };
                for row in <$table as $crate::options::Tabled>::rows() {
                    if !row.default.is_empty() {
                        // A test reads every default.
                        let _ = (row.read)(&mut out, row.default);
                    }
                }
                out
            }
        }
        impl $crate::options::Tabled for $table {
            fn rows() -> &'static [$crate::options::Opt<$table>] {
                use $crate::options::Field;
                #[allow(unused_mut)]
                const ROWS: &[$crate::options::Opt<$table>] = &[ $( {
                    let mut row = $crate::options::Opt {
                        name: stringify!($name),
                        long: "",
                        short: None,
                        heading: $crate::options::Heading::$heading,
                        help: concat!($($help, "\n"),+),
                        default: $default,
                        value: "",
                        choices: $crate::options::any,
                        hides_choices: false,
                        env: None,
                        check: $crate::options::unchecked,
                        listed: false,
                        words: 1,
                        path: false,
                        many: <$ty as Field>::MANY,
                        flag: <$ty as Field>::FLAG,
                        read: |s: &mut $table, text| s.$name.read(text),
                        texts: |s: &$table| s.$name.texts(),
                        reset: |s: &mut $table| s.$name = Default::default(),
                    };
                    $( $( row.$key = $value; )* )?
                    row
                } ),* ];
                ROWS
            }
        }
    };
}
