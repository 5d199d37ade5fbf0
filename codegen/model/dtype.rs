//! Element types of tensors.

use serde::{Deserialize, Serialize};
use std::fmt;

/// An element type.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// IEEE binary16.
    F16,
    /// The upper half of a binary32.
    Bf16,
    /// IEEE binary32.
    F32,
}

impl DType {
    /// All element types.
    pub const ALL: [Self; 3] = [Self::F16, Self::Bf16, Self::F32];

    /// The name used in axes, URIs and messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
        }
    }
    /// The type of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|t| t.name() == name)
    }
    /// How DLPack writes it: the code of its kind, and bits.
    #[must_use]
    #[inline]
    pub fn dlpack(self) -> (u8, u8) {
        match self {
            Self::F16 => (2, 16),
            Self::Bf16 => (4, 16),
            Self::F32 => (2, 32),
        }
    }
    /// Bytes of one element.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::F16 | Self::Bf16 => 2,
            Self::F32 => 4,
        }
    }
    /// Reads one element (little endian) exactly.
    ///
    /// # Panics
    /// If `raw` is shorter than [`DType::bytes`].
    #[must_use]
    pub fn load(self, raw: &[u8]) -> f64 {
        match self {
            Self::F32 => f64::from(f32::from_le_bytes([raw[0], raw[1], raw[2], raw[3]])),
            Self::Bf16 => f64::from(f32::from_bits(u32::from(u16::from_le_bytes([raw[0], raw[1]])) << 16)),
            Self::F16 => f16_to_f64(u16::from_le_bytes([raw[0], raw[1]])),
        }
    }
    /// Rounds to nearest, ties to even, and writes one element (little endian). A double is rounded once.
    ///
    /// # Panics
    /// If `raw` is shorter than [`DType::bytes`].
    pub fn store(self, value: f64, raw: &mut [u8]) {
        match self {
            Self::F32 => raw[..4].copy_from_slice(&(value as f32).to_le_bytes()),
            Self::Bf16 => {
                raw[..2].copy_from_slice(&(round_to(value, 8, -126, 127) as f32).to_bits().to_le_bytes()[2..])
            }
            Self::F16 => raw[..2].copy_from_slice(&f64_to_f16(value).to_le_bytes()),
        }
    }
    /// Rounds a value to this type.
    #[must_use]
    pub fn round(self, value: f64) -> f64 {
        let mut raw = [0; 4];
        self.store(value, &mut raw);
        self.load(&raw)
    }
    /// The distance between neighbouring values of this type around `value`: one unit in the last place.
    #[must_use]
    pub fn ulp(self, value: f64) -> f64 {
        let (precision, min_exponent) = match self {
            Self::F16 => (11, -14),
            Self::Bf16 => (8, -126),
            Self::F32 => (24, -126),
        };
        exp2(exponent(value).max(min_exponent) - (precision - 1))
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn exp2(exponent: i32) -> f64 {
    f64::powi(2.0, exponent)
}

/// The binary exponent of a finite value; that of the smallest normal double for zero and subnormals.
fn exponent(value: f64) -> i32 {
    ((value.to_bits() >> 52 & 0x7ff) as i32 - 1023).max(-1022)
}

/// Rounds to `precision` significant bits, ties to even, with gradual underflow and overflow to infinity.
fn round_to(value: f64, precision: i32, min_exponent: i32, max_exponent: i32) -> f64 {
    if !value.is_finite() || value == 0.0 {
        return value;
    }
    let unit = exp2(exponent(value).max(min_exponent) - (precision - 1));
    let rounded = (value / unit).round_ties_even() * unit;
    if rounded.abs() >= exp2(max_exponent) * 2.0 { f64::INFINITY.copysign(value) } else { rounded }
}

fn f64_to_f16(value: f64) -> u16 {
    let sign = if value.is_sign_negative() { 0x8000 } else { 0 };
    if value.is_nan() {
        return sign | 0x7e00;
    }
    let rounded = round_to(value, 11, -14, 15).abs();
    if rounded.is_infinite() {
        return sign | 0x7c00;
    }
    if rounded < exp2(-14) {
        return sign | (rounded * exp2(24)) as u16;
    }
    let e = exponent(rounded);
    let fraction = ((rounded / exp2(e) - 1.0) * 1024.0) as u16;
    sign | ((e + 15) as u16) << 10 | fraction
}

fn f16_to_f64(bits: u16) -> f64 {
    let (e, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    let magnitude = match e {
        0 => fraction * exp2(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1.0 + fraction / 1024.0) * exp2(e - 15),
    };
    if bits & 0x8000 != 0 { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_survives_a_round_trip() {
        for t in [DType::F16, DType::Bf16] {
            for bits in 0..=u16::MAX {
                let value = t.load(&bits.to_le_bytes());
                let mut raw = [0; 2];
                t.store(value, &mut raw);
                assert!(value.is_nan() || u16::from_le_bytes(raw) == bits, "{t} {bits:#06x} {value}");
            }
        }
    }

    #[test]
    fn rounding_is_to_nearest_even_once() {
        // 1 + 2^-11 is halfway between two halves; a bit more must go up even if it vanishes in f32.
        assert_eq!(DType::F16.round(1.0 + exp2(-11)), 1.0);
        assert_eq!(DType::F16.round(1.0 + exp2(-11) + exp2(-40)), 1.0 + exp2(-10));
        assert_eq!(DType::Bf16.round(1.0 + exp2(-8) + exp2(-40)), 1.0 + exp2(-7));
        assert_eq!(DType::F16.round(65519.9), 65504.0);
        assert_eq!(DType::F16.round(65520.0), f64::INFINITY);
        assert_eq!(DType::Bf16.round(3.5e38), f64::INFINITY);
        assert_eq!(DType::F16.ulp(1.0), exp2(-10));
        assert_eq!(DType::F32.ulp(0.0), exp2(-149));
    }
}
