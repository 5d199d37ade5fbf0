//! The parameters of a kernel, as its cubin states them: what a launcher must fill, byte for byte.

use super::{CubinError, attributes, elf, malformed};

/// Where one parameter lies in the buffer of parameters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Parameter {
    /// Its first byte.
    pub offset: u32,
    /// How many bytes it has.
    pub size: u32,
}

/// The parameters of a kernel, in order.
///
/// # Errors
/// Bytes that are no cubin.
pub fn parameters(bytes: &[u8], kernel: &str) -> Result<Vec<Parameter>, CubinError> {
    const PARAMETER: u8 = 0x17;
    let elf = elf(bytes)?;
    let mut found = Vec::new();
    for (number, value) in elf.section(&format!(".nv.info.{kernel}")).map(attributes).transpose()?.unwrap_or_default() {
        if number != PARAMETER {
            continue;
        }
        // Four bytes of index, then ordinal and offset, then flags with the size from bit 18 on.
        let (Some(offset), Some(flags)) = (value.u16(6), value.u32(8)) else {
            return Err(malformed("a parameter of another form"));
        };
        found.push(Parameter { offset: u32::from(offset), size: flags >> 18 });
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_state_their_one_struct() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata");
        let mut seen = 0;
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let bytes = std::fs::read(entry.path()).unwrap();
            let Ok(facts) = super::super::read(&bytes) else { continue };
            for (kernel, used) in &facts.resources {
                let found = parameters(&bytes, kernel).unwrap();
                let last = found.last().map_or(0, |p| p.offset + p.size);
                assert_eq!(last, used.param_bytes, "{}: {found:?}", entry.path().display());
                seen += usize::from(last > 0);
            }
            assert_eq!(parameters(&bytes, "another"), Ok(Vec::new()));
        }
        assert!(seen > 3, "{seen}");
    }
}
