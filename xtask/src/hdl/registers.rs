//! The register map of the card: `hdl/registers.toml`, and the Verilog, Rust and Markdown that are written from it.

use std::{fmt::Write as _, fs};

use toml::{Table, Value};

use crate::command::root;

/// The truth.
const SOURCE: &str = "hdl/registers.toml";
const VERILOG: &str = "hdl/rtl/registers.svh";
const RUST: &str = "accel/src/fpga/registers.rs";
const MARKDOWN: &str = "hdl/README.md";
/// What stands between these lines of the Markdown file is written.
const MARKS: [&str; 2] = ["<!-- registers: begin -->\n", "<!-- registers: end -->\n"];

/// Writes all files anew.
///
/// # Errors
///
/// Returns which file cannot be read or written, or what the map lacks.
pub(super) fn write() -> Result<(), String> {
    for (path, text) in files()? {
        fs::write(root().join(path), text).map_err(|error| format!("{path}: {error}"))?;
    }
    Ok(())
}

/// Returns whether all files are as [`write()`] would write them.
///
/// # Errors
///
/// Returns the first that is not, or what [`write()`] returns.
pub(super) fn check() -> Result<(), String> {
    for (path, text) in files()? {
        if read(path)? != text {
            return Err(format!(
                "{path} is not what {SOURCE} says: run `cargo xtask hdl registers`"
            ));
        }
    }
    Ok(())
}

fn read(path: &str) -> Result<String, String> {
    fs::read_to_string(root().join(path)).map_err(|error| format!("{path}: {error}"))
}

fn files() -> Result<[(&'static str, String); 3], String> {
    let map = Map(read(SOURCE)?.parse().map_err(|error| format!("{SOURCE}: {error}"))?);
    let text = read(MARKDOWN)?;
    let parts = MARKS.map(|mark| text.find(mark).map(|at| (at, at + mark.len())));
    let [Some((_, begin)), Some((end, _))] = parts else {
        return Err(format!("{MARKDOWN} has no {:?}", MARKS[0].trim()));
    };
    let markdown = format!("{}{}{}", &text[..begin], map.markdown()?, &text[end..]);
    Ok([(VERILOG, map.verilog()?), (RUST, map.rust()?), (MARKDOWN, markdown)])
}

/// The columns of each list's table, of which the first is the list's name.
const LISTS: [&str; 5] = [
    "register | at",
    "field | word | bits",
    "flag | bit",
    "operation | code | by",
    "status | code",
];

/// The map as it was read.
struct Map(Table);

/// One entry of a list of the map.
struct Entry<'m>(&'m str, &'m Table);

impl Map {
    fn number(&self, name: &str) -> Result<i64, String> {
        self.0.get(name).and_then(Value::as_integer).ok_or_else(|| format!("{SOURCE}: no {name}"))
    }

    /// Returns the entries of all lists, each with the columns of its list.
    fn entries(&self) -> Result<Vec<(&'static str, Entry<'_>)>, String> {
        let mut all = vec![];
        for columns in LISTS {
            let name = columns.split(' ').next().unwrap_or_default();
            let entries = self.0.get(name).and_then(Value::as_array);
            let entries = entries.ok_or_else(|| format!("{SOURCE}: no [[{name}]]"))?;
            let tables = entries.iter().filter_map(Value::as_table);
            all.extend(tables.map(|table| (columns, Entry(name, table))));
        }
        Ok(all)
    }

    fn units(&self) -> Vec<&str> {
        let units = self.0.get("units").and_then(Value::as_array);
        units.into_iter().flatten().filter_map(Value::as_str).collect()
    }

    fn verilog(&self) -> Result<String, String> {
        let mut text = String::from(
            "// Written by `cargo xtask hdl registers` from registers.toml; included in the modules that use it.\n\
             // verilator lint_off UNUSEDPARAM\n",
        );
        let mut put = |line: &str| text += &format!("localparam {line};\n");
        put(&format!("[31:0] ID = 32'h{:08x}", self.number("id")?));
        put(&format!("[31:0] VERSION = {}", self.number("version")?));
        for (_, entry) in self.entries()? {
            put(&entry.written()?.verilog);
        }
        for (code, unit) in self.units().iter().enumerate() {
            put(&format!("[1:0] UNIT_{} = {code}", unit.to_uppercase()));
        }
        Ok(text + "// verilator lint_on UNUSEDPARAM\n")
    }

    fn rust(&self) -> Result<String, String> {
        let mut text = String::from(
            "//! The register map of the card, written by `cargo xtask hdl registers` from `hdl/registers.toml`.\n",
        );
        let mut put = |about: &str, line: String| {
            let about = comment(&format!("{}.", sentence(about)));
            text += &format!("\n{about}pub(super) const {line};\n");
        };
        let id = format!("ID: u32 = {:#010x}", self.number("id")?);
        put("the number that a card answers with", id);
        put("the version of this map", format!("VERSION: u32 = {}", self.number("version")?));
        for (_, entry) in self.entries()? {
            put(entry.word("text")?, entry.written()?.rust);
        }
        text += "\n/// A field of a descriptor: its word, its lowest bit there, and its bits.\n\
                 #[derive(Clone, Copy)]\n\
                 pub(super) struct Field {\n    \
                 pub(super) word: usize,\n    \
                 pub(super) low: u32,\n    \
                 pub(super) bits: u32,\n}\n";
        Ok(text)
    }

    fn markdown(&self) -> Result<String, String> {
        let (mut text, mut last) = (String::new(), "");
        for (columns, entry) in self.entries()? {
            if columns != last {
                let rule = "---|".repeat(columns.split(" | ").count() + 1);
                let _ = write!(text, "\n| {columns} | |\n|{rule}\n");
                last = columns;
            }
            let (name, cells) = (entry.word("name")?, entry.written()?.markdown);
            let _ = writeln!(text, "| `{name}` | {cells} | {} |", entry.word("text")?);
        }
        Ok(text + "\n")
    }
}

/// What is written of an entry: the declarations of its constants, and the cells of a table between name and text.
struct Written {
    verilog: String,
    rust: String,
    markdown: String,
}

impl<'m> Entry<'m> {
    fn get<T>(&self, key: &str, of: impl Fn(&'m Value) -> Option<T>) -> Result<T, String> {
        let Self(list, table) = self;
        let name = table.get("name").and_then(Value::as_str).unwrap_or("?");
        table
            .get(key)
            .and_then(of)
            .ok_or_else(|| format!("{SOURCE}: [[{list}]] {name} has no {key}"))
    }

    fn number(&self, key: &str) -> Result<i64, String> {
        self.get(key, Value::as_integer)
    }

    fn word(&self, key: &str) -> Result<&'m str, String> {
        self.get(key, Value::as_str)
    }

    fn written(&self) -> Result<Written, String> {
        let name = format!("{}_{}", self.0, self.word("name")?).to_uppercase();
        let [verilog, rust, markdown] = match self.0 {
            "register" => {
                let at = self.number("at")?;
                let wide = if self.1.contains_key("bits") { ", 64 bits" } else { "" };
                [
                    format!("[15:0] {name} = 16'h{at:04x}"),
                    format!("{name}: u32 = {at:#05x}"),
                    format!("{at:#05x}{wide}"),
                ]
            }
            "field" => {
                let (word, [high, low]) = (self.number("word")?, self.bits()?);
                let field = format!("word: {word}, low: {low}, bits: {}", high - low + 1);
                [
                    format!("{name}_LOW = {}", 32 * word + low),
                    format!("{name}: Field = Field {{ {field} }}"),
                    format!("{word} | {high}:{low}"),
                ]
            }
            "flag" => {
                let bit = self.number("bit")?;
                [format!("{name} = {bit}"), format!("{name}: u32 = 1 << {bit}"), bit.to_string()]
            }
            _ => {
                let code = self.number("code")?;
                let unit = if self.0 == "operation" { Some(self.word("unit")?) } else { None };
                [
                    format!("[7:0] {name} = {code}"),
                    format!("{name}: u32 = {code}"),
                    unit.map_or(code.to_string(), |unit| format!("{code} | {unit}")),
                ]
            }
        };
        Ok(Written { verilog, rust, markdown })
    }

    /// Returns the highest and the lowest bit.
    fn bits(&self) -> Result<[i64; 2], String> {
        let both = |value: &Value| -> Option<[i64; 2]> {
            let [high, low] = value.as_array()?.as_slice() else { return None };
            Some([high.as_integer()?, low.as_integer()?])
        };
        self.get("bits", both)
    }
}

/// Returns words with a capital letter first.
fn sentence(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// Returns documentation of lines of at most 100 columns.
fn comment(text: &str) -> String {
    let (mut lines, mut line) = (String::new(), String::from("///"));
    for word in text.split(' ') {
        if line.chars().count() + 1 + word.chars().count() > 100 {
            lines += &std::mem::replace(&mut line, "///".into());
            lines.push('\n');
        }
        line.push(' ');
        line += word;
    }
    lines + &line + "\n"
}
