"""Compiles one unit with Triton. The toolchain starts this in a private folder; nothing else is on its path.

Exit status 2: the unit is not what its op promises. 3: this Python cannot run Triton.
"""

import json
import os
import sys
import traceback

FOLDER = os.getcwd()
# Triton's own, after the parameters: nothing is ever in them here.
SCRATCH = ["global_scratch", "profile_scratch"]


def end(status, why):
    sys.stderr.write(f"{why}\n")
    sys.exit(status)


def expect(what, expected, got):
    if expected != got:
        end(2, f"{what}: expected {expected}, got {got}")


def load(path):
    """The unit, a module whose name may have dashes."""
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location("unit", path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def name_files_from_here():
    """Line tables hold names of files, which must not tell in which folder this ran, and their dates if they are found
    where the assembler runs."""
    from triton.compiler import code_generator

    elsewhere = os.path.join(FOLDER, "elsewhere")
    os.mkdir(elsewhere)
    os.chdir(elsewhere)

    found = code_generator.get_jit_fn_file_line

    def relative(function):
        name, line = found(function)
        return os.path.relpath(name, FOLDER), line

    code_generator.get_jit_fn_file_line = relative


def compile_unit(manifest):
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    name_files_from_here()
    unit = load(os.path.join(FOLDER, manifest["unit"]))
    fields = [name for name, _ in unit.PARAMETERS["fields"]]
    expect("parameters in the order of the struct's fields", fields, [*unit.TYPES, *SCRATCH])
    kernel = triton.jit(unit.KERNEL.fn, repr=lambda _: manifest["entry"])
    names = kernel.arg_names
    expect("arguments of the kernel", names, [*unit.TYPES, *unit.CONSTANTS])
    source = ASTSource(
        kernel,
        {name: unit.TYPES.get(name, "constexpr") for name in names},
        dict(unit.CONSTANTS),
        {(names.index(name),): [["tt.divisibility", n]] for name, n in unit.MULTIPLES.items()},
    )
    options = {"num_warps": unit.WARPS, "num_stages": unit.STAGES, "num_ctas": 1, **manifest["options"]}
    compiled = triton.compile(source, target=GPUTarget("cuda", manifest["arch"], 32), options=options)
    made = compiled.metadata
    # The launcher was compiled before, and knows these only from where the unit has them too.
    expect("warps", unit.WARPS, made.num_warps)
    expect("blocks of a cluster", 1, made.num_ctas)
    expect("bytes of scratch memory", (0, 0), (made.global_scratch_size, made.profile_scratch_size))
    if made.shared > unit.SHARED:
        end(2, f"dynamic shared memory: expected at most {unit.SHARED} bytes, got {made.shared}")
    with open(os.path.join(FOLDER, "kernel.cubin"), "wb") as file:
        file.write(compiled.asm["cubin"])


def main():
    with open("manifest.json", encoding="utf-8") as file:
        manifest = json.load(file)
    version = "%d.%d" % sys.version_info[:2]
    if version != manifest["python"]:
        end(3, f"this is Python {version}, and Triton was installed for {manifest['python']}")
    # Behind the standard library, which no family of kernels may hide.
    sys.path += [os.path.join(FOLDER, "site"), FOLDER]
    try:
        import triton
        from triton.errors import TritonError
    except Exception as error:
        end(3, f"Triton cannot be imported: {error!r}")
    if triton.__version__ != manifest["triton"]:
        end(3, f"this is Triton {triton.__version__}, expected {manifest['triton']}")
    try:
        compile_unit(manifest)
    except TritonError as error:
        end(1, f"{type(error).__name__}: {error}")
    except Exception:
        end(1, traceback.format_exc().replace(FOLDER + os.sep, ""))


main()
