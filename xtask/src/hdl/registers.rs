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

/// The map as it was read.
struct Map(Table);

/// One entry of a list of the map.
struct Entry<'m>(&'m str, &'m Table);

impl Map {
    fn number(&self, name: &str) -> Result<i64, String> {
        self.0.get(name).and_then(Value::as_integer).ok_or_else(|| format!("{SOURCE}: no {name}"))
    }

    /// Returns the entries of a list.
    fn list(&self, name: &'static str) -> Result<Vec<Entry<'_>>, String> {
        let entries = self.0.get(name).and_then(Value::as_array);
        let entries = entries.ok_or_else(|| format!("{SOURCE}: no [[{name}]]"))?;
        Ok(entries.iter().filter_map(Value::as_table).map(|table| Entry(name, table)).collect())
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
        let mut put = |line: String| text += &format!("localparam {line};\n");
        put(format!("[31:0] ID = 32'h{:08x}", self.number("id")?));
        put(format!("[31:0] VERSION = {}", self.number("version")?));
        for register in self.list("register")? {
            put(format!(
                "[15:0] REGISTER_{} = 16'h{:04x}",
                register.capitals()?,
                register.number("at")?
            ));
        }
        for field in self.list("field")? {
            let (word, [_, low]) = (field.number("word")?, field.bits()?);
            put(format!("FIELD_{}_LOW = {}", field.capitals()?, 32 * word + low));
        }
        for flag in self.list("flag")? {
            put(format!("FLAG_{} = {}", flag.capitals()?, flag.number("bit")?));
        }
        for operation in self.list("operation")? {
            put(format!(
                "[7:0] OPERATION_{} = {}",
                operation.capitals()?,
                operation.number("code")?
            ));
        }
        for status in self.list("status")? {
            put(format!("[7:0] STATUS_{} = {}", status.capitals()?, status.number("code")?));
        }
        for (code, unit) in self.units().iter().enumerate() {
            put(format!("[1:0] UNIT_{} = {code}", unit.to_uppercase()));
        }
        Ok(text + "// verilator lint_on UNUSEDPARAM\n")
    }

    fn rust(&self) -> Result<String, String> {
        let mut text = String::from(
            "//! The register map of the card, written by `cargo xtask hdl registers` from `hdl/registers.toml`.\n",
        );
        let mut put = |about: &str, line: String| {
            text += &format!(
                "\n{}pub(super) const {line};\n",
                comment(&format!("{}.", sentence(about)))
            );
        };
        put(
            "the number that a card answers with",
            format!("ID: u32 = {:#010x}", self.number("id")?),
        );
        put("the version of this map", format!("VERSION: u32 = {}", self.number("version")?));
        for register in self.list("register")? {
            let line =
                format!("REGISTER_{}: u32 = {:#05x}", register.capitals()?, register.number("at")?);
            put(register.text()?, line);
        }
        for field in self.list("field")? {
            let [high, low] = field.bits()?;
            let (word, bits) = (field.number("word")?, high - low + 1);
            let value = format!("Field {{ word: {word}, low: {low}, bits: {bits} }}");
            put(field.text()?, format!("FIELD_{}: Field = {value}", field.capitals()?));
        }
        for flag in self.list("flag")? {
            put(
                flag.text()?,
                format!("FLAG_{}: u32 = 1 << {}", flag.capitals()?, flag.number("bit")?),
            );
        }
        for operation in self.list("operation")? {
            let line =
                format!("OPERATION_{}: u32 = {}", operation.capitals()?, operation.number("code")?);
            put(operation.text()?, line);
        }
        for status in self.list("status")? {
            let line = format!("STATUS_{}: u32 = {}", status.capitals()?, status.number("code")?);
            put(status.text()?, line);
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
        let mut text = String::from("\n| register | at | |\n|---|---|---|\n");
        for register in self.list("register")? {
            let wide = if register.0 == "register" && register.1.contains_key("bits") {
                ", 64 bits"
            } else {
                ""
            };
            let (name, at) = (register.name()?, register.number("at")?);
            let _ = writeln!(text, "| `{name}` | {at:#05x}{wide} | {} |", register.text()?);
        }
        text += "\n| field | word | bits | |\n|---|---|---|---|\n";
        for field in self.list("field")? {
            let ([high, low], word) = (field.bits()?, field.number("word")?);
            let _ = writeln!(
                text,
                "| `{}` | {word} | {high}:{low} | {} |",
                field.name()?,
                field.text()?
            );
        }
        text += "\n| flag | bit | |\n|---|---|---|\n";
        for flag in self.list("flag")? {
            let _ = writeln!(
                text,
                "| `{}` | {} | {} |",
                flag.name()?,
                flag.number("bit")?,
                flag.text()?
            );
        }
        text += "\n| operation | code | by | |\n|---|---|---|---|\n";
        for operation in self.list("operation")? {
            let unit = operation.word("unit")?;
            let (name, code) = (operation.name()?, operation.number("code")?);
            let _ = writeln!(text, "| `{name}` | {code} | {unit} | {} |", operation.text()?);
        }
        text += "\n| status | code | |\n|---|---|---|\n";
        for status in self.list("status")? {
            let _ = writeln!(
                text,
                "| `{}` | {} | {} |",
                status.name()?,
                status.number("code")?,
                status.text()?
            );
        }
        text.push('\n');
        Ok(text)
    }
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

    fn name(&self) -> Result<&'m str, String> {
        self.word("name")
    }

    fn text(&self) -> Result<&'m str, String> {
        self.word("text")
    }

    fn capitals(&self) -> Result<String, String> {
        self.name().map(str::to_uppercase)
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
