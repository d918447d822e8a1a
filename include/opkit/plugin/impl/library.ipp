// Loads, registers and unloads libraries.
#ifndef OPKIT_PLUGIN_IMPL_LIBRARY_IPP_
#define OPKIT_PLUGIN_IMPL_LIBRARY_IPP_

#include <algorithm>
#include <set>

#include "opkit/graph/hosted_graph.hpp"
#include "opkit/graph/partition/partitioner.hpp"
#include "opkit/graph/passes/named_pass.hpp"
#include "opkit/op/boundary/convert/abi_attributes.hpp"
#include "opkit/op/function/function_operator.hpp"
#include "opkit/plugin/library.hpp"
#include "opkit/plugin/load/library_adapter.hpp"
#include "opkit/plugin/load/library_layouts.hpp"
#include "opkit/plugin/load/library_ops.hpp"
#include "opkit/plugin/load/library_partitioners.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

OPKIT_INLINE LoadedLibrary::~LoadedLibrary() = default;

// The loaded libraries of the program.
struct LibraryTable {
  Mutex mutex;  // held while a library is loaded or unloaded
  std::vector<LoadedLibraryPtr> libraries;
  static LibraryTable& Global() {
    static auto* table = new LibraryTable;  // operators may outlive every static object
    return *table;
  }
};

// Collects the faults of several operators, so that an author sees all of them at once.
class Faults {
 public:
  template <class Step>
  void Try(Step step) {
    try {
      step();
    } catch (const Error& fault) {
      if (text_.empty()) code_ = fault.code();
      text_ += StrCat(text_.empty() ? "" : "\n", fault.message());
    }
  }
  void ThrowIfAny() const {
    if (!text_.empty()) throw Error(code_, text_);
  }

 private:
  ErrorCode code_{};
  std::string text_;
};

// Throws if this program cannot read the library's description.
inline void CheckLibrary(const opkit_library& library, const std::string& name) {
  if (!IsAligned(&library))
    RefuseDescription(name, "describes itself at an address that is not aligned");
  if (library.abi_major != OPKIT_ABI_MAJOR)
    RefuseDescription(
        name,
        StrCat("was compiled for version ", library.abi_major, ".", library.abi_minor,
               " of the ABI, this program has ", OPKIT_ABI_MAJOR, ".", OPKIT_ABI_MINOR),
        StrCat("compile it with headers of ABI version ", OPKIT_ABI_MAJOR),
        ErrorCode::kUnsupported);
  if (!IsReadable(&library))
    RefuseDescription(name,
                      StrCat("describes itself in ", library.size, " bytes, where version 1.0 has ",
                             kFirstBytes<opkit_library>),
                      "fill in opkit_library.size with sizeof(opkit_library)");
  CheckLibraryText(name, library.name, "opkit_library.name");
  CheckLibraryText(name, library.version, "opkit_library.version");
  if (OPKIT_ABI_HAS(&library, own_version))
    CheckLibraryText(name, library.own_version, "opkit_library.own_version");
}
// Returns the operators of a library's description; registers nothing. Throws an Error that names
// every operator with a fault.
inline std::vector<FunctionRecord> ReadLibrary(const opkit_library& library,
                                               const std::string& name) {
  constexpr uint64_t kMostOps = 1'000'000;
  if (library.num_ops > 0 && !IsUsable(library.ops))
    RefuseDescription(name, StrCat("has operators, but opkit_library.ops is ",
                                   library.ops ? "not aligned" : "null"));
  if (library.num_ops > kMostOps)
    RefuseDescription(name, StrCat("says it has ", library.num_ops, " operators"),
                      "at most a million");
  std::vector<FunctionRecord> records;
  std::set<std::string> names;
  Faults faults;
  for (uint64_t i = 0; i < library.num_ops; ++i)
    faults.Try([&] { records.push_back(ImportOp(library.ops[i], i, name)); });
  faults.ThrowIfAny();
  const auto add = [&](const std::string& op) {
    if (!names.insert(op).second)
      RefuseDescription(name, StrCat("has two operators named ", op), "remove or rename one",
                        ErrorCode::kAlreadyExists);
  };
  for (const FunctionRecord& record : records) {
    add(record->name);
    if (record->HasBackward()) add(record->name + "_backward");
  }
  return records;
}

// The table of libraries, locked for the object's life. Throws kFailedPrecondition in a library's
// initialize and finalize, during which the table is locked already.
class LockedLibraries {
 public:
  LockedLibraries() : lock_(MutexOf(table_)) { t_has_library_table = true; }
  LockedLibraries(LockedLibraries&&) = delete;
  ~LockedLibraries() { t_has_library_table = false; }
  std::vector<LoadedLibraryPtr>& all() const { return table_.libraries; }

 private:
  static Mutex& MutexOf(LibraryTable& table) {
    if (t_has_library_table)
      Throw(ErrorCode::kFailedPrecondition,
            "libraries cannot be loaded, unloaded or listed while one is being loaded or unloaded, "
            "as in its initialize or finalize");
    return table.mutex;
  }
  LibraryTable& table_ = LibraryTable::Global();
  MutexLock lock_;
};

// Loads and unloads libraries. Holds the table's lock for its life.
class LibraryLoader {
 public:
  LoadedLibraryPtr LoadFile(const std::string& path, const LoadOptions& options) {
    auto object = options.own_copy ? SharedObject::OpenCopy(path) : SharedObject::Open(path);
    for (const LoadedLibraryPtr& known : table_.all())
      if (known->image->object && known->image->object->base() == object->base()) {
        CheckSameOptions(*known, options);
        return known;
      }
    void* const entry = object->Find(OPKIT_LIBRARY_ENTRY);
    IntrusivePtr<AdaptedLibrary> adapted;
    if (!entry) adapted = AdaptLibrary(*object, WithoutFolder(path));
    if (!entry && !adapted)
      Throw(ErrorCode::kInvalidArgument, path,
            " is a shared object, but exports no " OPKIT_LIBRARY_ENTRY
            ": it is not a library of operators. ",
            HasMangledEntry(*object) ? "One is there that is not extern \"C\""
            : object->Find("_opRegSize")
                ? "It is a library for MXNet: include opkit/interop/mxnet.hpp in this program, or "
                  "link opkit::mxnet"
                : "Include opkit/op.hpp in it, or opkit/plugin/author.hpp beside opkit/opkit.hpp");
    return Load(std::move(object), reinterpret_cast<opkit_library_entry_function>(entry),
                WithoutFolder(path), path, options, std::move(adapted));
  }

  // Loads the library that `entry` describes, or `adapted` if that is not null.
  LoadedLibraryPtr Load(IntrusivePtr<SharedObject> object, opkit_library_entry_function entry,
                        const std::string& name, const std::string& path,
                        const LoadOptions& options, IntrusivePtr<AdaptedLibrary> adapted = {}) {
    auto loaded = MakeIntrusive<LoadedLibrary>();
    loaded->path = path;
    loaded->image = MakeIntrusive<LibraryImage>();
    LibraryImage& image = *loaded->image;
    image.object = std::move(object);
    image.name = UniqueName(name);
    if (adapted) image.library = &adapted->library;
    image.adapted = std::move(adapted);
    CallEntry(image, "refuses to be loaded: ", [&] {
      if (image.library) return OPKIT_OK;
      image.library = entry(&HostTable::Global());
      std::string& why = CurrentHostError().text;
      if (!image.library && why.empty()) why = "its entry returned null and does not say why";
      return image.library ? OPKIT_OK : OPKIT_FAILED;
    });
    CheckLibrary(*image.library, image.name);
    image.announced = WithoutFolder(name);
    if (const char* own = image.library->name; own && *own) {
      image.name = UniqueName(own);
      image.announced = WithoutFolder(own);
    }
    RegisterLayoutsOf(*loaded);
    try {
      loaded->records = ReadLibrary(*image.library, image.name);
      if (OPKIT_ABI_HAS(image.library, backends))
        AddParts<opkit_backend>(
            *loaded, image.library->num_backends, image.library->backends, "backend",
            +[](LoadedLibrary& own, const opkit_backend& backend) {
              own.backends.emplace_back(backend.name, &backend);
            });
      loaded->overrides = options.allow_override;
      loaded->backend = UniqueBackend(options.backend.empty() ? BackendOf(name) : options.backend,
                                      loaded->records);
      if (image.library->initialize)
        CallEntry(image, "failed to initialize: ", [&] {
          return image.library->initialize(OPKIT_ABI_MAJOR, OPKIT_ABI_MINOR);
        });
      Finalizers::Add(image);
      RegisterPartitioners(*loaded);
      Register(*loaded, options);
    } catch (...) {
      Finalizers::Call(image);
      RemovePartitioners(*loaded);
      RemoveLayoutsOf(*loaded);
      throw;
    }
    table_.all().push_back(loaded);
    return loaded;
  }

  // Unloads a library. The caller must keep a handle to `loaded` until the call returns.
  UnloadReport Unload(LoadedLibrary& loaded) {
    const auto place = std::ranges::find(table_.all(), &loaded, &LoadedLibraryPtr::get);
    const std::string name = loaded.image ? loaded.image->name : loaded.path;
    const auto refuse = [&](const Text& why) {
      Throw(ErrorCode::kFailedPrecondition, "library ", name, why);
    };
    if (place == table_.all().end()) refuse(" is unloaded already");
    if (RegistryUse::IsInThisThread())
      refuse(
          " cannot be unloaded from inside a call that uses operators: a library's function, or "
          "the making of an operator, a plan or a gradient; unload it when that has returned");
    {
      const RegistryRemoval removal;
      if (loaded.in_use.use_count() > loaded.idle_count)
        refuse(StrCat(" cannot be unloaded: ", WhatHolds(*loaded.in_use)));
      if (const std::string held = WhatHoldsLayouts(loaded, table_.all()); !held.empty())
        refuse(StrCat(" cannot be unloaded: ", held));
      Unregister(loaded);
      RemovePartitioners(loaded);
      RemoveLayoutsOf(loaded);
      table_.all().erase(place);
      AdoptOrphans(loaded);
      AdoptLayouts(table_.all());
    }
    LibraryImagePtr image = std::move(loaded.image);
    loaded.records.clear();
    UnloadReport report;
    report.finalize_failure = Finalizers::Call(*image);
    IntrusivePtr<SharedObject> object = std::move(image->object);
    image = LibraryImagePtr();
    if (!object) return report;
    CloseReport closed = SharedObject::Close(object);
    report.unmapped = closed.unmapped;
    report.pinned_by = std::move(closed.pinned_by);
    return report;
  }

 private:
  // Returns, as text, the runs, operators and plans that must end before the library can be
  // unloaded.
  static std::string WhatHolds(const FunctionUse& use) {
    const int64_t operators = use.operators.load(std::memory_order_relaxed),
                  runs = use.late_runs.load(std::memory_order_relaxed);
    std::string text;
    if (runs > 0)
      text = StrCat(runs, runs == 1 ? " run of its operators is" : " runs of its operators are",
                    " in flight; wait for the event, event().Finish(), or end it by the "
                    "completion handle that the operator took");
    if (operators > 0)
      text +=
          StrCat(text.empty() ? "" : "; then ", operators,
                 operators == 1 ? " operator of it is" : " operators of it are",
                 " alive, alone or in a plan; destroy ", operators == 1 ? "it" : "them", " first");
    return !text.empty() ? text
                         : "a plan of it is alive, or work of it waits on a stream; destroy the "
                           "plan, and wait for the stream";
  }
  // Throws if a loaded file is to be loaded again with other options.
  static void CheckSameOptions(const LoadedLibrary& known, const LoadOptions& options) {
    const bool same_backend = options.backend.empty() || options.backend == known.backend;
    if (same_backend && (known.overrides || !options.allow_override)) return;
    Throw(ErrorCode::kFailedPrecondition, "library ", known.image->name,
          " is loaded already, as backend ", known.backend,
          known.overrides ? "" : " and without allow_override",
          "; unload it first, or ask for its own_copy");
  }
  // Calls a function of the library. Throws an Error with the library's reason if it fails.
  template <class Call>
  static void CallEntry(const LibraryImage& image, const char* failed, Call call) {
    HostErrorScope message;
    const opkit_status status = CallGuarded(call);
    if (status == OPKIT_OK) return;
    RefuseDescription(image.name, StrCat(failed, ReasonOf(status)), {}, CodeOfStatus(status));
  }
  static bool HasMangledEntry(const SharedObject& object) {
    return std::ranges::any_of(object.ExportedFunctions(), [](const std::string& function) {
      return function.find(OPKIT_LIBRARY_ENTRY) != std::string::npos;
    });
  }
  static std::string WithoutFolder(const std::string& path) {
    return path.substr(path.rfind('/') + 1);
  }
  // Returns the backend name for a file's name: "libmy_ops.so" -> "my_ops".
  static std::string BackendOf(std::string name) {
    if (name.substr(0, 3) == "lib") name = name.substr(3);
    const size_t dot = name.find(".so");
    return dot == std::string::npos || dot == 0 ? name : name.substr(0, dot);
  }
  std::string UniqueName(const std::string& name) const {
    std::string unique = name;
    const auto is_it = [&](const LoadedLibraryPtr& known) { return known->image->name == unique; };
    for (int n = 2; std::ranges::any_of(table_.all(), is_it); ++n)
      unique = StrCat(name, " (", n, ")");
    return unique;
  }
  // Returns a backend name that no other library has, and no kernel of these operators.
  std::string UniqueBackend(const std::string& name,
                            const std::vector<FunctionRecord>& records) const {
    std::string unique = name;
    const auto has = [&](const std::string& op) {
      return std::ranges::count(OpRegistry::Global().KernelsOf(op), unique, &Kernel::backend) > 0;
    };
    const auto is_taken = [&] {
      return std::ranges::count(table_.all(), unique, [](auto& l) { return l->backend; }) > 0 ||
             std::ranges::any_of(records, [&](const FunctionRecord& record) {
               return has(record->name) || has(record->name + "_backward");
             });
    };
    for (int n = 2; is_taken(); ++n) unique = StrCat(name, ".", n);
    return unique;
  }
  // Registers all operators of the library, or none.
  void Register(LoadedLibrary& loaded, const LoadOptions& options) {
    const LibraryImage& image = *loaded.image;
    FunctionOpHost::Enable();
    try {
      Faults faults;
      for (size_t i = 0; i < loaded.records.size(); ++i) {
        FunctionOpRecord& record = *loaded.records[i];
        BindRecord(record, loaded.image, loaded.op(i));
        record.in_use = loaded.in_use;
        ++loaded.idle_count;
        faults.Try([&] { CheckComplete(image, record); });
      }
      faults.ThrowIfAny();
      RegisterBackends(loaded);
      for (size_t i = 0; i < loaded.records.size(); ++i) {
        FunctionOpRecord& record = *loaded.records[i];
        const bool exists = Exists(record.name);
        CheckGradientIsFree(image, record, exists);
        loaded.owns.push_back(!exists);
        if (exists) WarnOfAttributes(image, record);
        RegisterOp(loaded, i);
        if (!exists || !options.allow_override) continue;
        OpRegistry::Global().AddOverride(record.name, loaded.backend, image.name);
        if (record.HasBackward())
          OpRegistry::Global().AddOverride(record.name + "_backward", loaded.backend, image.name);
      }
    } catch (...) {
      Unregister(loaded);
      throw;
    }
  }
  // Registers ranks and availability of the library's backends. Kernels for operators that already
  // exist in the program get no rank: they run only if a node names their backend, or with
  // allow_override.
  static void RegisterBackends(const LoadedLibrary& loaded) {
    for (const auto& [name, backend] : loaded.backends) {
      if (backend->rank >= 0)
        OpRegistry::Global().SetBackendRank(name, backend->rank, loaded.image->name);
      if (!backend->available) continue;
      for (const std::string& one : {name, BackendBeside(loaded, name)})
        OpRegistry::Global().SetBackendAvailability(
            one,
            [backend = backend] {
              const RegistryUse use;
              const HostErrorScope message;
              const opkit_status status = CallGuarded([&] { return backend->available(backend); });
              return status == OPKIT_OK ? std::string() : ReasonOf(status);
            },
            loaded.image->name);
    }
  }
  // Returns the backend name of the library's kernels for an operator that already exists.
  static std::string BackendBeside(const LoadedLibrary& loaded, const std::string& backend) {
    return backend.empty() ? loaded.backend : loaded.backend + "." + backend;
  }
  // Returns the numbers of inputs and outputs; -1 for a number that attributes decide.
  static std::pair<int, int> ArityWithoutAttributes(FunctionOpRecord& record) {
    try {
      return FunctionArity(record, Arguments());
    } catch (const Error&) {  // the function requires an attribute
      return {-1, -1};
    }
  }
  // Throws for an operator of version 1.1 or later that lacks a required function. The schema of an
  // existing operator can replace the function; a graph that the node carries can replace the
  // inference of types and shapes.
  static void CheckComplete(const LibraryImage& image, FunctionOpRecord& record) {
    if (image.library->abi_minor == 0 || OpRegistry::Global().FindSchema(record.name)) return;
    const auto need = [&](bool is_there, const char* function, const char* why, const char* mend) {
      if (!is_there)
        RefuseDescription(image.name,
                          StrCat("has operator ", record.name, " without ", function, ": ", why),
                          mend);
    };
    const opkit_op& op = record.abi;
    const bool carries_graph = record.Has(OPKIT_OP_SUBGRAPH);
    need(op.parse_attrs || carries_graph, "parseAttrs",
         "nothing says how many inputs and outputs a node has",
         "add .setParseAttrs(f), or declare them by .input(name) and .output(name)");
    const auto [inputs, outputs] = ArityWithoutAttributes(record);
    if (record.Has(OPKIT_OP_ALLOCATES_OUTPUTS)) return;
    if (carries_graph && !op.infer_type && !op.infer_shape) return;
    need(op.infer_shape || outputs == 0, "inferShape", "nothing says the shapes of its outputs",
         carries_graph ? "add .setInferShape(f), or leave out .setInferType(f): then both follow "
                         "from the graph that its node carries"
                       : "add .setInferShape(f), or .allocatesOutputs()");
    need(op.infer_type || outputs == 0 || inputs != 0, "inferType",
         "it has no input whose dtype its outputs could have", "add .setInferType(f)");
  }
  // Warns if a library's operator declares an attribute that the program's operator of the same
  // name does not accept: the program's schema stays valid.
  static void WarnOfAttributes(const LibraryImage& image, const FunctionOpRecord& record) {
    const OpSchema* schema = OpRegistry::Global().FindSchema(record.name);
    for (const AttributeSchema& attribute : record.attributes)
      if (schema && !schema->TakesArgument(attribute.name))
        return WriteLog(LogLevel::kWarning, image.name,
                        StrCat("its operator ", record.name, " declares the attribute '",
                               attribute.name, "', but the program has ", record.name,
                               schema->origin().empty() ? "" : " of library " + schema->origin(),
                               " already, whose schema stays: nodes cannot give it; unload the "
                               "other one first"));
  }
  static bool Exists(const std::string& op) {
    return OpRegistry::Global().FindSchema(op) || !OpRegistry::Global().KernelsOf(op).empty();
  }
  // True if the program's operator `backward` may be the gradient operator of `record`: the numbers
  // of its inputs and outputs fit.
  static bool MayDifferentiate(FunctionOpRecord& record, const std::string& backward) {
    const OpSchema* schema = OpRegistry::Global().FindSchema(backward);
    if (!schema) return true;
    const auto [inputs, outputs] = ArityWithoutAttributes(record);
    const bool known = inputs >= 0 && outputs >= 0;
    try {
      const auto [from, to] = schema->Arity(Arguments());
      return (!known || from < 0 || from == 2 * outputs + inputs) &&
             (inputs < 0 || to < 0 || to == inputs);
    } catch (const Error&) {  // the arity depends on attributes
      return true;
    }
  }
  // A backward function becomes the operator <name>_backward. Throws kAlreadyExists if another
  // operator has that name, or if a new operator's gradient is registered already.
  static void CheckGradientIsFree(const LibraryImage& image, FunctionOpRecord& record,
                                  bool exists) {
    const bool has_backward = record.HasBackward();
    if (!has_backward && !SaysGradient(record)) return;
    const std::string backward = record.name + "_backward";
    const bool taken =
        has_backward && Exists(backward) && !(exists && MayDifferentiate(record, backward));
    if (exists && !taken) return;
    if (taken || GradientRegistry::Global().Find(record.name))
      Throw(ErrorCode::kAlreadyExists, "library ", image.name, " brings operator ", record.name,
            taken ? StrCat(" with a backward function, whose operator ", backward)
                  : std::string(" with a gradient, which"),
            " this program has already; rename it");
  }
  void RegisterOp(LoadedLibrary& loaded, size_t i) {
    FunctionOpRecord& record = *loaded.records[i];
    FunctionOpHost host(loaded.records[i]);
    const bool owns = loaded.owns[i];
    if (owns) host.Begin(/*is_complete=*/true);
    for (FunctionDevice& device : record.devices) {
      // If the library registers the operator, a kernel keeps the name of its backend.
      const std::string backend = owns ? device.backend : BackendBeside(loaded, device.backend);
      host.Add(device, FunctionPass::kForward, backend);
      ++loaded.idle_count;
      if (!device.abi.backward) continue;
      AddGradient(loaded, i, host);  // before the kernel, which would also register a gradient
      host.Add(device, FunctionPass::kBackward, backend);
      ++loaded.idle_count;
    }
    AddGradient(loaded, i, host);
  }
  // Registers this library's gradient of an operator, if the operator has none.
  void AddGradient(LoadedLibrary& loaded, size_t i, FunctionOpHost& host) {
    const FunctionOpRecord& record = *loaded.records[i];
    const bool has_one = GradientRegistry::Global().Find(record.name);
    if (record.HasBackward()) {
      if (!has_one) loaded.gradients.push_back(record.name);
      if (!has_one || !Exists(record.name + "_backward")) host.AddBackward();
    } else if (!has_one && SaysGradient(record)) {
      loaded.gradients.push_back(record.name);
      GradientRegistry::Global().Add(record.name,
                                     MakeLibraryGradient(loaded.image, loaded.op(i), record));
    }
  }
  void Unregister(LoadedLibrary& loaded) {
    OpRegistry::Global().RemoveOrigin(loaded.image->name);
    for (const std::string& op : loaded.gradients) GradientRegistry::Global().Remove(op);
    loaded.gradients.clear();
  }
  // Registers operators and gradients of the unloaded library again if other libraries also have
  // them.
  void AdoptOrphans(const LoadedLibrary& gone) {
    for (size_t i = 0; i < gone.records.size(); ++i) {
      bool adopted = !gone.owns[i];
      for (const LoadedLibraryPtr& other : table_.all())
        for (size_t k = 0; k < other->records.size(); ++k) {
          if (other->records[k]->name != gone.records[i]->name) continue;
          if (!adopted && !other->owns[k]) {
            other->owns[k] = adopted = true;
            RegisterOp(*other, k);
          } else {
            FunctionOpHost host(other->records[k]);
            AddGradient(*other, k, host);
          }
        }
    }
  }

  LockedLibraries table_;
};

template <class Part>
std::vector<std::string> NamesOf(const std::vector<IntrusivePtr<const Part>>& parts) {
  std::vector<std::string> names;
  for (const auto& part : parts) names.push_back(part->name());
  return names;
}

// Logs warnings about a loaded library. Called without the table's lock, since the log hook may
// call functions of Library.
inline void Warn(const LoadedLibrary& loaded) {
  // The mangled C++ name and the C name of initialize; MXNet calls the C name.
  if (loaded.image && loaded.image->object && !loaded.image->library->initialize)
    for (const std::string& function : loaded.image->object->ExportedFunctions())
      if (function == "_Z10initializei" || function == "initialize")
        WriteLog(LogLevel::kWarning, loaded.image->name,
                 "has a function initialize(int), as MXNet's libraries have, and it is not called; "
                 "write OPKIT_LIBRARY_INITIALIZE(initialize); behind it, or make it static");
  if (loaded.image && loaded.records.empty() && loaded.partitioners.empty() &&
      loaded.passes.empty())
    WriteLog(LogLevel::kWarning, loaded.image->name,
             "registers no operator; write REGISTER_OP(name)… in it, or a class's registration in "
             "a unit that includes opkit/op.hpp");
}

}  // namespace detail

OPKIT_INLINE std::string ToString(const UnloadReport& report) {
  std::string text = "unmapped";
  if (!report.unmapped) text = "still mapped, by another part of the program";
  if (!report.pinned_by.empty())
    text = StrCat("still mapped, pinned by its symbols ", report.pinned_by,
                  "; compile it with -fno-gnu-unique, and without thread_local objects that have "
                  "destructors");
  if (!report.finalize_failure.empty())
    text += StrCat("; its finalize failed: ", report.finalize_failure);
  return text;
}

OPKIT_INLINE Library Library::Load(const std::string& path, const LoadOptions& options) {
  detail::LoadedLibraryPtr loaded = detail::LibraryLoader().LoadFile(path, options);
  detail::Warn(*loaded);
  return Library(std::move(loaded));
}
OPKIT_INLINE Library Library::Build(const std::string& source, const BuildOptions& build,
                                    const LoadOptions& options) {
  const std::string path = BuildLibrary(source, build);
  // A result is FOLDER/CONTENT/libNAME.so, in a folder of the source, the compiler and the flags.
  const std::string folder = path.substr(0, path.rfind('/', path.rfind('/') - 1) + 1);
  for (Library& old : All()) {
    if (old.path() == path || !old.path().starts_with(folder)) continue;
    const LoadOptions before = {.backend = old.backend(), .allow_override = old.loaded().overrides};
    const std::string old_path = old.path();
    detail::InContext([&] { old.Unload(); },
                      [&] { return StrCat("while a new build of '", source, "' replaces it"); });
    try {
      return Load(path, options);
    } catch (...) {
      Load(old_path, before);
      throw;
    }
  }
  return Load(path, options);
}
OPKIT_INLINE Library Library::LoadEntry(opkit_library_entry_function entry, const std::string& name,
                                        const LoadOptions& options) {
  if (!entry || name.empty())
    Throw(ErrorCode::kInvalidArgument, "LoadEntry needs an entry and a name for the library");
  detail::LoadedLibraryPtr loaded = detail::LibraryLoader().Load({}, entry, name, name, options);
  detail::Warn(*loaded);
  return Library(std::move(loaded));
}
OPKIT_INLINE std::vector<Library> Library::All() {
  detail::LockedLibraries table;
  std::vector<Library> all;
  for (const auto& library : table.all()) all.push_back(Library(library));
  return all;
}

OPKIT_INLINE detail::LoadedLibrary& Library::loaded() const {
  if (!loaded_)
    Throw(ErrorCode::kFailedPrecondition,
          "this Library holds no library; Library::Load returns one that does");
  return *loaded_;
}
OPKIT_INLINE const detail::LibraryImage& Library::image() const {
  if (!loaded().image) Throw(ErrorCode::kFailedPrecondition, "library ", path(), " is unloaded");
  return *loaded_->image;
}
OPKIT_INLINE std::string Library::own_version() const {
  const opkit_library& library = *image().library;
  return OPKIT_ABI_HAS(&library, own_version) && library.own_version ? library.own_version : "";
}
OPKIT_INLINE std::vector<std::string> Library::operators() const {
  static_cast<void>(image());
  std::vector<std::string> names;
  for (const auto& record : loaded_->records) names.push_back(record->name);
  return names;
}
OPKIT_INLINE std::vector<std::string> Library::partitioners() const {
  static_cast<void>(image());
  return detail::NamesOf(loaded_->partitioners);
}
OPKIT_INLINE std::vector<std::string> Library::passes() const {
  static_cast<void>(image());
  return detail::NamesOf(loaded_->passes);
}
OPKIT_INLINE UnloadReport Library::Unload() { return detail::LibraryLoader().Unload(loaded()); }

}}  // namespace opkit

#endif  // OPKIT_PLUGIN_IMPL_LIBRARY_IPP_
