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
    /// Signed 32-bit integers.
    I32,
    /// Signed 64-bit integers.
    I64,
    /// Bytes: unsigned integers, packed bits, and codes that have no type of their own.
    U8,
    /// Bytes that are 0 or 1.
    Bool,
    /// FP8 with four exponent bits, finite and NaN (OCP E4M3FN).
    E4m3,
    /// FP8 with five exponent bits (OCP E5M2).
    E5m2,
}

/// A format of floating-point numbers.
struct Float {
    /// Significant bits, the hidden one included.
    precision: i32,
    /// Exponent of the smallest normal number.
    min_exponent: i32,
    /// The largest number.
    max: f64,
}

impl DType {
    /// All element types.
    pub const ALL: [Self; 9] =
        [Self::F16, Self::Bf16, Self::F32, Self::I32, Self::I64, Self::U8, Self::Bool, Self::E4m3, Self::E5m2];

    /// The name used in axes, URIs and messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::U8 => "u8",
            Self::Bool => "bool",
            Self::E4m3 => "e4m3",
            Self::E5m2 => "e5m2",
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
            Self::I32 => (0, 32),
            Self::I64 => (0, 64),
            Self::U8 => (1, 8),
            Self::Bool => (6, 8),
            Self::E4m3 => (10, 8),
            Self::E5m2 => (12, 8),
        }
    }
    /// Bytes of one element.
    #[must_use]
    #[inline]
    pub fn bytes(self) -> usize {
        match self {
            Self::U8 | Self::Bool | Self::E4m3 | Self::E5m2 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::F32 | Self::I32 => 4,
            Self::I64 => 8,
        }
    }
    /// The format, if elements are floating-point numbers.
    fn float(self) -> Option<Float> {
        let float = |precision, min_exponent, max| Some(Float { precision, min_exponent, max });
        match self {
            Self::F16 => float(11, -14, 65504.0),
            Self::Bf16 => float(8, -126, f64::from(f32::from_bits(0x7f7f_0000))),
            Self::F32 => float(24, -126, f64::from(f32::MAX)),
            Self::E4m3 => float(4, -6, 448.0),
            Self::E5m2 => float(3, -14, 57344.0),
            Self::I32 | Self::I64 | Self::U8 | Self::Bool => None,
        }
    }
    /// Whether elements are floating-point numbers.
    #[must_use]
    pub fn is_float(self) -> bool {
        self.float().is_some()
    }
    /// Reads one element (little endian) exactly; 64-bit integers beyond 2^53 are rounded.
    ///
    /// # Panics
    /// If `raw` is shorter than [`DType::bytes`].
    #[must_use]
    pub fn load(self, raw: &[u8]) -> f64 {
        let half = || u16::from_le_bytes([raw[0], raw[1]]);
        let word = || [raw[0], raw[1], raw[2], raw[3]];
        match self {
            Self::F32 => f64::from(f32::from_le_bytes(word())),
            Self::Bf16 => f64::from(f32::from_bits(u32::from(half()) << 16)),
            Self::F16 => narrow_to_f64(u32::from(half()), 5, 10, true),
            Self::I32 => f64::from(i32::from_le_bytes(word())),
            Self::I64 => i64::from_le_bytes(raw[..8].try_into().expect("bug: eight bytes were taken")) as f64,
            Self::U8 | Self::Bool => f64::from(raw[0]),
            Self::E4m3 => narrow_to_f64(u32::from(raw[0]), 4, 3, false),
            Self::E5m2 => narrow_to_f64(u32::from(raw[0]), 5, 2, true),
        }
    }
    /// Rounds to nearest, ties to even, and writes one element (little endian). A double is rounded once. What is beyond
    /// the range of an FP8 type or an integer becomes its largest value, as kernels saturate; NaN stays NaN, and is 0 as
    /// an integer.
    ///
    /// # Panics
    /// If `raw` is shorter than [`DType::bytes`].
    pub fn store(self, value: f64, raw: &mut [u8]) {
        match self {
            Self::F32 => raw[..4].copy_from_slice(&(value as f32).to_le_bytes()),
            Self::Bf16 => {
                raw[..2].copy_from_slice(&(round_to(value, 8, -126, 127) as f32).to_bits().to_le_bytes()[2..])
            }
            Self::F16 => raw[..2].copy_from_slice(&(f64_to_narrow(value, 5, 10, true) as u16).to_le_bytes()),
            Self::I32 => raw[..4].copy_from_slice(&(value.round_ties_even() as i32).to_le_bytes()),
            Self::I64 => raw[..8].copy_from_slice(&(value.round_ties_even() as i64).to_le_bytes()),
            Self::U8 => raw[0] = value.round_ties_even() as u8,
            Self::Bool => raw[0] = u8::from(value != 0.0),
            Self::E4m3 => raw[0] = f64_to_narrow(value.clamp(-448.0, 448.0), 4, 3, false) as u8,
            Self::E5m2 => raw[0] = f64_to_narrow(value.clamp(-57344.0, 57344.0), 5, 2, true) as u8,
        }
    }
    /// Rounds a value to this type.
    #[must_use]
    pub fn round(self, value: f64) -> f64 {
        let mut raw = [0; 8];
        self.store(value, &mut raw);
        self.load(&raw)
    }
    /// The distance between neighbouring values of this type around `value`: one unit in the last place.
    #[must_use]
    pub fn ulp(self, value: f64) -> f64 {
        self.float().map_or(1.0, |f| exp2(exponent(value).max(f.min_exponent) - (f.precision - 1)))
    }
    /// The largest finite value of a floating-point type.
    #[must_use]
    pub fn max(self) -> Option<f64> {
        self.float().map(|f| f.max)
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

/// Encodes in a sign, `e` exponent bits and `m` fraction bits; without infinities the largest exponent holds numbers, and
/// all ones are NaN.
fn f64_to_narrow(value: f64, e: u32, m: u32, infinities: bool) -> u32 {
    let bias = (1 << (e - 1)) - 1;
    let sign = u32::from(value.is_sign_negative()) << (e + m);
    let top = (1u32 << e) - 1;
    if value.is_nan() {
        let quiet = if infinities { 1 << (m - 1) } else { (1 << m) - 1 };
        return sign | top << m | quiet;
    }
    let max_exponent = if infinities { bias } else { bias + 1 };
    let rounded = round_to(value, m as i32 + 1, 1 - bias, max_exponent).abs();
    if rounded.is_infinite() {
        return sign | top << m;
    }
    if rounded < exp2(1 - bias) {
        return sign | (rounded * exp2(bias - 1 + m as i32)) as u32;
    }
    let found = exponent(rounded);
    let fraction = ((rounded / exp2(found) - 1.0) * f64::from(1u32 << m)) as u32;
    sign | ((found + bias) as u32) << m | fraction
}

fn narrow_to_f64(bits: u32, e: u32, m: u32, infinities: bool) -> f64 {
    let bias = (1 << (e - 1)) - 1;
    let top = (1u32 << e) - 1;
    let (exponent, fraction) = (bits >> m & top, bits & ((1 << m) - 1));
    let share = f64::from(fraction) / f64::from(1u32 << m);
    let magnitude = match exponent {
        0 => share * exp2(1 - bias),
        x if x == top && infinities => {
            if fraction == 0 {
                f64::INFINITY
            } else {
                f64::NAN
            }
        }
        x if x == top && fraction == (1 << m) - 1 => f64::NAN,
        x => (1.0 + share) * exp2(x as i32 - bias),
    };
    if bits >> (e + m) & 1 == 1 { -magnitude } else { magnitude }
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

    #[test]
    fn every_fp8_code_survives_a_round_trip_and_saturates() {
        for t in [DType::E4m3, DType::E5m2] {
            for code in 0..=u8::MAX {
                let value = t.load(&[code]);
                let mut raw = [0];
                t.store(value, &mut raw);
                assert!(!value.is_finite() || raw[0] == code, "{t} {code:#04x} {value}");
                assert!(!value.is_nan() || t.load(&raw).is_nan());
            }
            let max = t.max().unwrap();
            assert_eq!((t.round(1e9), t.round(f64::NEG_INFINITY)), (max, -max));
            assert!(t.round(f64::NAN).is_nan());
        }
        assert_eq!(DType::E4m3.load(&[0x7e]), 448.0);
        assert_eq!(DType::E4m3.load(&[0x01]), exp2(-9));
        assert_eq!(DType::E5m2.load(&[0x7b]), 57344.0);
        assert_eq!(DType::E5m2.load(&[0x01]), exp2(-16));
        // Halfway to the next: to the even code. Between 416 and 448, 432 is the tie, and 448 is even.
        assert_eq!((DType::E4m3.round(432.0), DType::E4m3.round(431.9)), (448.0, 416.0));
        assert_eq!(DType::E4m3.round(exp2(-10)), 0.0);
        assert_eq!(DType::E4m3.round(exp2(-10) * 1.01), exp2(-9));
    }

    #[test]
    fn integers_are_exact_and_clamped() {
        assert_eq!(DType::I64.round(9_007_199_254_740_991.0), 9_007_199_254_740_991.0);
        assert_eq!((DType::I32.round(-1.0), DType::I32.round(3e9)), (-1.0, f64::from(i32::MAX)));
        assert_eq!((DType::U8.round(-1.0), DType::U8.round(256.0), DType::Bool.round(7.0)), (0.0, 255.0, 1.0));
        assert_eq!(DType::I32.ulp(1e9), 1.0);
    }
}
