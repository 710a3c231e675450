//! What can be a gate's name: short, and safe in a log, a metric or a key of any store.

/// No name of a gate is longer, in bytes.
pub const NAME_MAX: usize = 64;

/// What to write instead of something that is no name.
pub const NAME_RULE: &str = "write 1 to 64 letters, digits or any of `._-:/`, for example `checkout`";

/// True if a gate can have this name.
pub fn is_gate_name(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "._-:/".contains(c);
    !name.is_empty() && name.len() <= NAME_MAX && name.chars().all(is_part)
}
