//! The register map of the card: `hdl/registers.toml`, and the Verilog and Rust that are written from it.

use std::fs;

use toml::{Table, Value};

use crate::command::root;

/// The truth.
const SOURCE: &str = "hdl/registers.toml";
const VERILOG: &str = "hdl/rtl/registers.svh";
const RUST: &str = "accel/src/fpga/registers.rs";

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

fn files() -> Result<[(&'static str, String); 2], String> {
    let map = Map(read(SOURCE)?.parse().map_err(|error| format!("{SOURCE}: {error}"))?);
    Ok([(VERILOG, map.verilog()?), (RUST, map.rust()?)])
}

const LISTS: [&str; 5] = ["register", "field", "flag", "operation", "status"];

/// The map as it was read.
struct Map(Table);

/// One entry of a list of the map.
struct Entry<'m>(&'m str, &'m Table);

impl Map {
    fn number(&self, name: &str) -> Result<i64, String> {
        self.0.get(name).and_then(Value::as_integer).ok_or_else(|| format!("{SOURCE}: no {name}"))
    }

    /// Returns the entries of all lists.
    fn entries(&self) -> Result<Vec<Entry<'_>>, String> {
        let mut all = vec![];
        for list in LISTS {
            let entries = self.0.get(list).and_then(Value::as_array);
            let entries = entries.ok_or_else(|| format!("{SOURCE}: no [[{list}]]"))?;
            all.extend(entries.iter().filter_map(Value::as_table).map(|table| Entry(list, table)));
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
        for entry in self.entries()? {
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
        for entry in self.entries()? {
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
}

/// The declarations of an entry's constants.
struct Written {
    verilog: String,
    rust: String,
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
        let [verilog, rust] = match self.0 {
            "register" => {
                let at = self.number("at")?;
                [format!("[15:0] {name} = 16'h{at:04x}"), format!("{name}: u32 = {at:#05x}")]
            }
            "field" => {
                let (word, [high, low]) = (self.number("word")?, self.bits()?);
                let field = format!("word: {word}, low: {low}, bits: {}", high - low + 1);
                [
                    format!("{name}_LOW = {}", 32 * word + low),
                    format!("{name}: Field = Field {{ {field} }}"),
                ]
            }
            "flag" => {
                let bit = self.number("bit")?;
                [format!("{name} = {bit}"), format!("{name}: u32 = 1 << {bit}")]
            }
            _ => {
                let code = self.number("code")?;
                [format!("[7:0] {name} = {code}"), format!("{name}: u32 = {code}")]
            }
        };
        Ok(Written { verilog, rust })
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
