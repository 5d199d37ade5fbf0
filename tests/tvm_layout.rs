//! Our structs of TVM FFI and DLPack are those of the headers in the wheel `apache-tvm-ffi`, as bindgen reads them.
//!
//! `PARBAKE_TEST_TVM_INCLUDE` names the wheel's folder of headers, else `python3` is asked for it; where no wheel is
//! installed, or no libclang, the test is skipped.

#![allow(clippy::print_stdout, reason = "skips are printed")]

use parbake::door::dlpack::{self, DLDataType, DLDevice, DLTensor};
use parbake::door::tvm_ffi::{Any, AnyValue, ByteArray, OBJECT_HEADER, index};
use parbake_codegen::layout::{self, Layouts};
use parbake_model::dtype::DType;
use parbake_model::settings::Config;
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::path::PathBuf;
use std::process::Command;

/// Folders that hold `tvm/ffi/c_api.h` and `dlpack/dlpack.h`.
fn headers() -> Option<Vec<PathBuf>> {
    let folders: Vec<PathBuf> = match std::env::var_os("PARBAKE_TEST_TVM_INCLUDE") {
        Some(folders) => std::env::split_paths(&folders).collect(),
        None => {
            let ask = "import tvm_ffi.libinfo as l; print(l.find_include_path()); print(l.find_dlpack_include_path())";
            let said = Command::new("python3").args(["-c", ask]).output().ok().filter(|o| o.status.success())?;
            String::from_utf8(said.stdout).ok()?.lines().map(PathBuf::from).collect()
        }
    };
    let has = |file: &str| folders.iter().any(|folder| folder.join(file).is_file());
    (has("tvm/ffi/c_api.h") && has("dlpack/dlpack.h")).then_some(folders)
}

/// What bindgen makes of them.
fn bindings(folders: &[PathBuf]) -> String {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    command.args(["run", "--quiet", "--locked", "-p", "parbake-codegen", "--features", "bindings", "--", "--read"]);
    command.args(["TVMFFI.*|kTVMFFI.*|DL.*|kDL.*", "tvm/ffi/extra/c_env_api.h"]).args(folders);
    let output = command.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// `pub const DLDeviceType_kDLCUDA: DLDeviceType = 2;`, by the name in the header.
fn constants(bindings: &str) -> BTreeMap<&str, i64> {
    let lines = bindings.lines().filter_map(|line| line.trim().strip_prefix("pub const ")?.split_once(": "));
    let values = lines.filter_map(|(name, rest)| {
        let value = rest.rsplit_once("= ")?.1.trim_end_matches(';').parse().ok()?;
        Some((name.rsplit_once("_k").map_or(name, |(kind, _)| &name[kind.len() + 1..]), value))
    });
    values.collect()
}

/// Everything that is not as in the header.
struct Differences<'a> {
    theirs: &'a Layouts,
    found: Vec<String>,
}

impl Differences<'_> {
    fn is(&mut self, what: &str, ours: usize, theirs: Option<usize>) {
        if theirs != Some(ours) {
            self.found.push(format!("{what}: ours is {ours}, the header has {theirs:?}"));
        }
    }
    fn layout<T>(&mut self, name: &str, fields: &[(&str, usize)]) {
        let layout = self.theirs.get(name);
        self.is(&format!("size of {name}"), size_of::<T>(), layout.map(|l| l.size));
        self.is(&format!("alignment of {name}"), align_of::<T>(), layout.map(|l| l.align));
        for (field, offset) in fields {
            self.is(&format!("{name}::{field}"), *offset, layout.and_then(|l| l.fields.get(*field).copied()));
        }
    }
}

#[test]
fn structs_and_numbers_are_those_of_the_wheel() {
    let Some(folders) = headers() else {
        println!("skipped: needs the wheel apache-tvm-ffi (or PARBAKE_TEST_TVM_INCLUDE)");
        return;
    };
    let toolchains = Config::from_env().unwrap().toolchains;
    let libclang = parbake_codegen::bindings::installed_libclang(&toolchains);
    if libclang.is_none() && std::env::var_os("LIBCLANG_PATH").is_none() {
        println!("skipped: needs libclang (parbake toolchain install libclang)");
        return;
    }
    let bindings = bindings(&folders);
    let theirs = layout::from_bindings(&bindings);
    let mut differences = Differences { theirs: &theirs, found: Vec::new() };
    let d = &mut differences;
    d.layout::<DLDevice>(
        "DLDevice",
        &[("device_type", offset_of!(DLDevice, device_type)), ("device_id", offset_of!(DLDevice, device_id))],
    );
    d.layout::<DLDataType>(
        "DLDataType",
        &[
            ("code", offset_of!(DLDataType, code)),
            ("bits", offset_of!(DLDataType, bits)),
            ("lanes", offset_of!(DLDataType, lanes)),
        ],
    );
    d.layout::<DLTensor>(
        "DLTensor",
        &[
            ("data", offset_of!(DLTensor, data)),
            ("device", offset_of!(DLTensor, device)),
            ("ndim", offset_of!(DLTensor, ndim)),
            ("dtype", offset_of!(DLTensor, dtype)),
            ("shape", offset_of!(DLTensor, shape)),
            ("strides", offset_of!(DLTensor, strides)),
            ("byte_offset", offset_of!(DLTensor, byte_offset)),
        ],
    );
    d.layout::<Any>("TVMFFIAny", &[("type_index", offset_of!(Any, type_index))]);
    // The rest of it are unions without a name: the length of a short text, and the value.
    let (length, value) = (offset_of!(Any, small_len), offset_of!(Any, value));
    assert_eq!((length, value), (4, 8), "they follow the type's number, each aligned to its own size");
    d.layout::<u32>("TVMFFIAny__bindgen_ty_1", &[]);
    let fields = ["v_int64", "v_float64", "v_ptr", "v_bytes", "v_dtype", "v_device"].map(|field| (field, 0));
    d.layout::<AnyValue>("TVMFFIAny__bindgen_ty_2", &fields);
    d.layout::<ByteArray>(
        "TVMFFIByteArray",
        &[("data", offset_of!(ByteArray, data)), ("size", offset_of!(ByteArray, size))],
    );
    d.is("size of TVMFFIObject", OBJECT_HEADER, theirs.get("TVMFFIObject").map(|l| l.size));

    let constants = constants(&bindings);
    let dtype = |dtype: DType| i32::from(dtype.dlpack().0);
    for (name, ours) in [
        ("kTVMFFINone", index::NONE),
        ("kTVMFFIInt", index::INT),
        ("kTVMFFIBool", index::BOOL),
        ("kTVMFFIFloat", index::FLOAT),
        ("kTVMFFIDLTensorPtr", index::DLTENSOR),
        ("kTVMFFIRawStr", index::RAW_STR),
        ("kTVMFFISmallStr", index::SMALL_STR),
        ("kTVMFFIStr", index::STR),
        ("kTVMFFITensor", index::TENSOR),
        ("kDLCPU", dlpack::CPU),
        ("kDLCUDA", dlpack::CUDA),
        ("kDLCUDAHost", dlpack::CUDA_HOST),
        ("kDLCUDAManaged", dlpack::CUDA_MANAGED),
        ("kDLFloat", dtype(DType::F16)),
        ("kDLFloat", dtype(DType::F32)),
        ("kDLBfloat", dtype(DType::Bf16)),
    ] {
        d.is(name, ours as usize, constants.get(name).map(|v| *v as usize));
    }
    // The functions that are looked up in the process, as they are called.
    let words = bindings.split_whitespace().collect::<Vec<_>>().join(" ").replace(", )", ")").replace("( ", "(");
    for declared in [
        "fn TVMFFIErrorSetRaisedFromCStr(kind: *const ::core::ffi::c_char, message: *const ::core::ffi::c_char);",
        "fn TVMFFIEnvGetStream(device_type: i32, device_id: i32) -> TVMFFIStreamHandle;",
        "pub type TVMFFIStreamHandle = *mut ::core::ffi::c_void;",
        "fn TVMFFIStringFromByteArray(input: *const TVMFFIByteArray, out: *mut TVMFFIAny) -> ::core::ffi::c_int;",
    ] {
        if !words.contains(declared) {
            d.found.push(format!("the header has no `{declared}`"));
        }
    }
    assert!(differences.found.is_empty(), "\n{}\n", differences.found.join("\n"));
}
