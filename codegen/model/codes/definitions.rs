//! Codes about settings, op definitions, specs and bakes.

use super::{Code, row};

pub(super) const SETTINGS: &[Code] = &[row(
    "PB-1001",
    "A setting holds a value that it does not accept",
    "An environment variable of the table of settings has a value of the wrong form: a path that is not absolute or not UTF-8, an unknown word, a number out of range. Nothing was done.",
    "Set it to what the error expects, or unset it. `parbake config` shows every setting; docs/reference/settings.md says what each accepts.",
)];

pub(super) const DEFINITIONS: &[Code] = &[
    row(
        "PB-1101",
        "An op definition is wrong",
        "An `op.toml` has a field that is unknown, missing, of the wrong type, or in contradiction to another one. Every complaint is listed with line and column.",
        "Correct the lines that are named. docs/add-a-kernel.md shows a whole definition.",
    ),
    row(
        "PB-1102",
        "The kernel folder cannot be listed",
        "The folder that PARBAKE_KERNELS names, or one below it, is missing or may not be read.",
        "Let PARBAKE_KERNELS name the folder `kernels` of a checkout, or unset it to use the sources inside the library.",
    ),
    row(
        "PB-1103",
        "Two ops have the same name",
        "Names of ops are unique over all families, because URIs and exported functions carry them without the family.",
        "Rename one of the two folders, and its op.",
    ),
    row(
        "PB-1104",
        "A kernel source cannot be read",
        "A template or header of an op is missing, may not be read, or includes a file that the kernel tree does not have.",
        "See the cause that is named. Includes are literal and relative to `kernels/include` or `kernels`.",
    ),
    row(
        "PB-1105",
        "A template cannot be rendered",
        "The template engine refused an op's `.cu.tera`: a syntax error, or a name that the context does not have.",
        "Correct the line that is named. The context holds the op's axes, tactics and options, and never the target.",
    ),
    row(
        "PB-1106",
        "No layout is known of a parameter struct",
        "The generated manifest does not have the struct that the op's `params.h` declares, so the rendered unit could not assert its offsets.",
        "Run the generator: cargo run -p parbake-codegen --features bindings -- --write, and build again.",
    ),
    row(
        "PB-1107",
        "There is no such op",
        "No op of this library has that name. The error lists those there are, and the nearest one.",
        "`parbake ops` lists all ops. Names are `op` or `family/op`.",
    ),
    row(
        "PB-1108",
        "An op has no such axis, tactic, symbol or value",
        "A name or value that was given is not declared by the op, or an axis was left without a value.",
        "`parbake ops OP` shows axes, tactics, shape symbols and scalars with their values.",
    ),
    row(
        "PB-1109",
        "A combination does not exist",
        "The op excludes this combination of values, or the target lacks something that it needs. The reason is part of the definition. Nothing is compiled for another architecture instead.",
        "Choose a combination that exists: `parbake expand --arch TARGET --op OP --all` lists them, and the reasons for the rest.",
    ),
    row(
        "PB-1110",
        "There are no kernel sources to compile from",
        "The library was built without embedded sources, and no kernel folder is set. Bundles and a warm store are still served.",
        "Set PARBAKE_KERNELS to a folder of kernel sources, or use a build with the feature `embed-sources`.",
    ),
    row(
        "PB-1111",
        "A pattern matches no op",
        "The text given to `--op` matches neither the name nor the `family/name` of any op.",
        "Quote patterns, as in `--op 'norm/*'`. `parbake ops` lists the names.",
    ),
    row(
        "PB-1112",
        "No op supports any of the targets",
        "The ops that were chosen exist for none of the architectures asked for, so there is nothing to build. The reasons are listed.",
        "Add a target that the ops support, or other ops: `parbake ops OP` says from which architecture on it runs.",
    ),
    row(
        "PB-1113",
        "Images do not run on the fleet's oldest driver",
        "`--min-driver` states a driver that refuses images of the toolkit that would compile them. Nothing was compiled.",
        "Take an older toolkit with `--toolkit`, or state a newer driver.",
    ),
    row(
        "PB-1114",
        "A build with the feature `aot` has no targets",
        "The feature bakes kernels for an explicit list of architectures, and none was given.",
        "Set PARBAKE_AOT_ARCHS, as in `PARBAKE_AOT_ARCHS=80,90a cargo build --features aot`.",
    ),
    row(
        "PB-1115",
        "`host` cannot be embedded",
        "The feature `aot` puts images for GPUs into the library; the host target is not among them.",
        "Leave `host` out of PARBAKE_AOT_ARCHS; `parbake build --arch host` makes a bundle of it.",
    ),
    row(
        "PB-1116",
        "A bake has no targets",
        "Neither `--arch` nor PARBAKE_ARCHS names an architecture, and this machine has no GPU. Bakes never guess.",
        "Name the fleet's architectures, as in `--arch 80,90a`.",
    ),
    row(
        "PB-1117",
        "An output file cannot be written",
        "The file or folder that a command was to write to cannot be created, or is a folder. This is found out before anything is compiled.",
        "Name a file in a folder that you may write to, with `-o`.",
    ),
    row(
        "PB-1118",
        "No op has that axis value",
        "`--only` names an axis or a value that none of the chosen ops declares.",
        "`parbake ops OP` shows axes and values.",
    ),
    row(
        "PB-1120",
        "A launcher belongs to other sources",
        "The op's definition, parameters, launcher or reference in the kernel folder are not those that this program was built with. A launcher never fills the struct of another kernel, so the op can be baked, and not called.",
        "Build the program again; in a checkout run the generator first: cargo run -p parbake-codegen --features bindings -- --write, then cargo build.",
    ),
    row(
        "PB-1121",
        "Two Python functions have the same name",
        "Each op is a function of the package `parbake`, and so is each function of another library whose arguments an op's `[[peers]]` list. These names, those of families and what the package itself offers are all attributes of one module.",
        "Rename the op or its family, or leave out the peer's `arguments`: then it is named, and no function is made of it.",
    ),
    row(
        "PB-1130",
        "A kernel of a bake spills registers",
        "A release build of a kernel keeps registers in local memory, by what the compiler says of it. No bundle holds such a kernel; what is compiled on demand runs, with a warning. Nothing was packed, and every offender is listed.",
        "Let the tactic that is named hold less for this element type and architecture, exclude the combination with its reason in `op.toml`, or bake with another toolkit: `--toolkit`.",
    ),
    row(
        "PB-1141",
        "A file is no plan",
        "It is not what `parbake build --plan` wrote: not JSON of that form, too long, of another schema, or altered, so that its digest does not name it.",
        "Write the plan again: `parbake build --plan json -o FOLDER`.",
    ),
    row(
        "PB-1142",
        "A file is no unit that can be compiled",
        "It is not what `parbake build --plan` wrote for one compilation, or was altered since. A unit is compiled as it was planned or not at all.",
        "Write the plan again: `parbake build --plan json -o FOLDER`.",
    ),
    row(
        "PB-1143",
        "A unit was planned by another version",
        "The library version is part of what names a build, so another version cannot make the one that was planned.",
        "Compile with the version of Parbake that planned, or plan again with this one.",
    ),
    row(
        "PB-1144",
        "A toolchain is not the one that was planned with",
        "The compiler or packer found here has another id, or spells options in another way: another version or build of it. What it made would be another build, and not the bytes of the plan. Both are named.",
        "Install the same toolchain (`parbake toolchain install`), or plan again on a machine that has the toolchains of those that compile.",
    ),
    row(
        "PB-1145",
        "A shard that does not exist",
        "Shards are counted from 1, and there is none beyond the last.",
        "Write number and count, as in `--shard 2/5`.",
    ),
    row(
        "PB-1146",
        "Bundles of different makes are not merged",
        "They were made for different library versions or launch ABIs, or packed by another packer than the plan names. A bundle states one of each, and parts that were made differently would not give the bytes of a single build.",
        "Build those that differ again, with the same version of Parbake and the same toolchains.",
    ),
    row(
        "PB-1147",
        "Shards do not go together",
        "A shard is missing or there twice, or a bundle is of another plan, of another division of it, or no shard at all. The plan is named by its digest: it changes with sources, toolchains, targets, ops and options.",
        "Build all shards from one checkout, with the same options, toolchains and costs file; name each of them once.",
    ),
    row(
        "PB-1148",
        "Two builds of one image",
        "Two bundles hold an image of the same sources for the same target, and it is not the same build or not the same bytes. A bundle holds one, and nothing says which.",
        "Leave one of the files out, or build both with the same toolchains.",
    ),
    row(
        "PB-1149",
        "Bundles do not make up a plan",
        "Images that the plan asks for are missing, or there are images that it does not ask for. They are listed by name.",
        "Compile what is missing; compile again what was compiled by another plan.",
    ),
    row(
        "PB-1150",
        "Recorded costs cannot be used",
        "The file that `--costs` names cannot be read, or is not a list of what compilations took, as a bake leaves it as `costs.json` in its workspace. Shards are balanced by it, so all of them must be given the same one.",
        "Name a file that a bake wrote, or leave `--costs` out: units are then shared out by their keys alone.",
    ),
    row(
        "PB-1151",
        "A worker process does not start",
        "A bake compiles in processes of its own, which are the program itself with the argument `worker`. One of them could not be started, or ended before it was ready.",
        "See what it said. `parbake worker` with no input should say that it is ready, and end. A limit on processes (`ulimit -u`) is a common reason.",
    ),
    row(
        "PB-1152",
        "The bake was interrupted",
        "It was asked to end by a signal. What was compiled by then lies in the store; nothing was written under the name of the bundle.",
        "Run the same command again: it goes on where it was.",
    ),
    row(
        "PB-1153",
        "The description of a fleet is wrong",
        "The file that `parbake build --fleet` names cannot be read, has a field that is unknown or of the wrong type, names a GPU or an architecture that is not known, or a lock beside patterns.",
        "Correct the line that is named. docs/fleet.md shows a whole file.",
    ),
    row(
        "PB-1155",
        "Sources changed during a bake",
        "Kernels are read from a folder, and somebody edited it after the bake had planned. A bundle is of one state of the sources, so nothing was written.",
        "Run it again when nobody edits the kernels, or let PARBAKE_KERNELS name a copy.",
    ),
];
