//! Values in a dump: files of the format safetensors. The format has no strides, so values are dense; `call.json` has the
//! strides.

use super::values::{Source, Stop};
use crate::tensor::Tensor;
use parbake_model::dtype::DType;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Room for the header of a file: far more than the tensors of any op need.
pub(super) const MOST_HEADER: u64 = 1 << 20;

fn dtype(dtype: DType) -> Dtype {
    match dtype {
        DType::F16 => Dtype::F16,
        DType::Bf16 => Dtype::BF16,
        DType::F32 => Dtype::F32,
        DType::I32 => Dtype::I32,
        DType::I64 => Dtype::I64,
        DType::U8 => Dtype::U8,
        DType::Bool => Dtype::BOOL,
        DType::E4m3 => Dtype::F8_E4M3,
        DType::E5m2 => Dtype::F8_E5M2,
    }
}

/// Bytes of a tensor's elements.
pub(super) fn bytes(tensor: &Tensor) -> u64 {
    let elements = tensor.shape().iter().map(|n| n.unsigned_abs()).fold(1u64, u64::saturating_mul);
    elements.saturating_mul(tensor.dtype.bytes() as u64)
}

/// Writes values to a new file, piece by piece.
///
/// # Safety
/// The tensors' memory is valid.
pub(super) unsafe fn write(path: &Path, tensors: &[(&str, Tensor)], source: &Source) -> Result<(), Stop> {
    let mut at = 0usize;
    let mut infos = Vec::new();
    for (name, tensor) in tensors {
        let shape = tensor.shape().iter().map(|n| *n as usize).collect();
        let end = at + bytes(tensor) as usize;
        infos.push(((*name).to_owned(), TensorInfo { dtype: dtype(tensor.dtype), shape, data_offsets: (at, end) }));
        at = end;
    }
    let header = Metadata::new(None, infos).map_err(io::Error::other)?;
    let mut header = serde_json::to_vec(&header).map_err(io::Error::other)?;
    header.resize(header.len().next_multiple_of(8), b' ');
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(&header)?;
    for (_, tensor) in tensors {
        // SAFETY: the caller vouches for the memory; arguments that were checked have no negative strides.
        unsafe { source.each(tensor, &mut |piece| file.write_all(piece))? };
    }
    Ok(())
}

/// Reads values from a file that somebody else may have written: exactly these tensors, with these types and shapes.
/// What is not so is said in words.
pub(super) fn read(mut file: File, expected: &[(&str, DType, &[i64])]) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let size = file.metadata().map_err(|e| e.to_string())?.len();
    let wanted = expected.iter().try_fold(0u64, |sum, (_, dtype, shape)| {
        shape.iter().try_fold(dtype.bytes() as u64, |n, d| n.checked_mul(u64::try_from(*d).ok()?))?.checked_add(sum)
    });
    let wanted = wanted.ok_or("the tensors are larger than any memory")?;
    if size < wanted || size > wanted + 8 + MOST_HEADER {
        return Err(format!("expected {wanted} bytes of values and a header, got {size} bytes"));
    }
    let mut content = Vec::new();
    content.try_reserve_exact(size as usize).map_err(|e| e.to_string())?;
    Read::by_ref(&mut file).take(size).read_to_end(&mut content).map_err(|e| e.to_string())?;
    let tensors = SafeTensors::deserialize(&content).map_err(|e| e.to_string())?;
    if tensors.len() != expected.len() {
        return Err(format!("expected {} tensors, got {}", expected.len(), tensors.len()));
    }
    let mut values = BTreeMap::new();
    for (name, of, shape) in expected {
        let view = tensors.tensor(name).map_err(|e| e.to_string())?;
        let same = view.shape().iter().map(|n| *n as i64).eq(shape.iter().copied());
        if view.dtype() != dtype(*of) || !same {
            return Err(format!("`{name}`: expected {of} {shape:?}, got {:?} {:?}", view.dtype(), view.shape()));
        }
        values.insert((*name).to_owned(), view.data().to_vec());
    }
    Ok(values)
}
