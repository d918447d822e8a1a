// Library: operators loaded from a shared object at run time. They are operators like any other:
// in the registry, in graphs and plans, under observers.
#ifndef OPKIT_PLUGIN_LIBRARY_HPP_
#define OPKIT_PLUGIN_LIBRARY_HPP_

#include "opkit/plugin/library_check.hpp"
#include "opkit/plugin/library_gradient.hpp"
#include "opkit/plugin/library_ops.hpp"

namespace opkit::inline OPKIT_ABI {

struct LoadOptions {
  // What the library's kernels are called where the operator exists already: another backend of it,
  // which a node asks for with .Engine(backend). Empty: the file's name without "lib" and ".so".
  std::string backend = {};
  // Such a backend comes before those that the operator has, until the library is unloaded.
  bool allow_override = false;
  // Loads the file once more where it is loaded already, with variables of its own.
  bool own_copy = false;
};

// What became of a library's code.
struct UnloadReport {
  bool unmapped = false;               // no code of it is left in the process
  std::vector<std::string> pinned_by;  // otherwise: its symbols that may hold it there
  friend std::string ToString(const UnloadReport& report) {
    if (report.unmapped) return "unmapped";
    if (report.pinned_by.empty()) return "still mapped, by another part of the program";
    return StrCat("still mapped, pinned by its symbols ", report.pinned_by,
                  "; compile it with -fno-gnu-unique, and without thread_local objects that have "
                  "destructors");
  }
};

namespace detail {

// One that is loaded.
struct LoadedLibrary : RefCounted {
  LibraryImagePtr image;
  std::string path, backend;
  std::vector<FunctionRecord> records;
  std::vector<char> owns;              // the operator of records[i] is this library's
  std::vector<std::string> gradients;  // of the operators whose gradient is this library's
  bool overrides = false;              // its kernels come first
  IntrusivePtr<RefCounted> in_use{new RefCounted};
  int64_t idle_count = 1;  // handles of in_use while no operator of it lives: records', kernels'
};
using LoadedLibraryPtr = IntrusivePtr<LoadedLibrary>;

struct LibraryTable {
  Mutex mutex;  // held while a library is loaded or unloaded
  std::vector<LoadedLibraryPtr> libraries;
  static LibraryTable& Global() {
    static auto* table = new LibraryTable;  // operators may outlive every static object
    return *table;
  }
};

// A template, so that programs that load nothing do not compile it.
template <class Loaded>
class LibraryLoader {
  using LoadedPtr = IntrusivePtr<Loaded>;
  using Host = FunctionOpHost;

 public:
  explicit LibraryLoader(LibraryTable& table) : table_(table) {}

  LoadedPtr LoadFile(const std::string& path, const LoadOptions& options) {
    auto object = options.own_copy ? SharedObject::OpenCopy(path) : SharedObject::Open(path);
    for (const LoadedPtr& known : table_.libraries)
      if (known->image->object && known->image->object->base() == object->base()) {
        CheckSameOptions(*known, options);
        return known;
      }
    void* const entry = object->Find(OPKIT_LIBRARY_ENTRY);
    if (!entry)
      Throw(ErrorCode::kInvalidArgument, path,
            " is a shared object, but exports no " OPKIT_LIBRARY_ENTRY
            ": it is not a library of operators. ",
            HasMangledEntry(*object) ? "One is there that is not extern \"C\""
                                     : "Include opkit/plugin/author.hpp in it");
    const size_t slash = path.rfind('/');
    return Load(std::move(object), reinterpret_cast<opkit_library_entry_function>(entry),
                slash == std::string::npos ? path : path.substr(slash + 1), path, options);
  }

  LoadedPtr Load(IntrusivePtr<SharedObject> object, opkit_library_entry_function entry,
                 const std::string& name, const std::string& path, const LoadOptions& options) {
    auto loaded = MakeIntrusive<Loaded>();
    loaded->path = path;
    loaded->image = MakeIntrusive<LibraryImage>();
    LibraryImage& image = *loaded->image;
    image.object = std::move(object);
    image.name = UniqueName(name);
    const LibraryCheck checker(image);
    {
      HostErrorScope message;
      const opkit_status status = CallGuarded([&] {
        image.library = entry(&ProgramHost());
        return image.library ? OPKIT_OK : OPKIT_FAILED;
      });
      if (status != OPKIT_OK)
        checker.Refuse(StrCat("refuses to be loaded: ", Reason()), {}, ErrorCode::kOperatorFailed);
    }
    CheckVersion(checker, *image.library);
    checker.Check();
    if (const char* own = image.library->name; own && *own) image.name = UniqueName(own);
    loaded->overrides = options.allow_override;
    loaded->backend =
        UniqueBackend(options.backend.empty() ? BackendOf(name) : options.backend, *image.library);
    if (image.library->initialize) {
      HostErrorScope message;
      const opkit_status status =
          CallGuarded([&] { return image.library->initialize(OPKIT_ABI_MAJOR, OPKIT_ABI_MINOR); });
      if (status != OPKIT_OK)
        checker.Refuse(StrCat("failed to initialize: ", Reason()), {}, CodeOfStatus(status));
    }
    try {
      Register(*loaded, options);
    } catch (...) {
      Finalize(image);
      throw;
    }
    // Registered now, it runs before the destructors of the library's own static objects.
    std::atexit([] { ProcessEnds() = true; });
    table_.libraries.push_back(loaded);
    return loaded;
  }

  UnloadReport Unload(const LoadedPtr& loaded) {
    size_t place = 0;
    while (place < table_.libraries.size() && !(table_.libraries[place] == loaded)) ++place;
    const std::string name = loaded->image ? loaded->image->name : loaded->path;
    if (place == table_.libraries.size())
      Throw(ErrorCode::kFailedPrecondition, "library ", name, " is unloaded already");
    if (loaded->in_use.use_count() > loaded->idle_count)
      Throw(ErrorCode::kFailedPrecondition, "library ", name,
            " cannot be unloaded: operators or plans of it are alive; destroy them first");
    Unregister(*loaded);
    table_.libraries.erase(table_.libraries.begin() + static_cast<std::ptrdiff_t>(place));
    AdoptOrphans(*loaded);
    LibraryImagePtr image = std::move(loaded->image);
    loaded->records.clear();
    Finalize(*image);
    IntrusivePtr<SharedObject> object = std::move(image->object);
    image = LibraryImagePtr();
    UnloadReport report;
    if (!object) return report;
    CloseReport closed = SharedObject::Close(object);
    report.unmapped = closed.unmapped;
    report.pinned_by = std::move(closed.pinned_by);
    return report;
  }

 private:
  // Of a file that is loaded already.
  static void CheckSameOptions(const Loaded& known, const LoadOptions& options) {
    const bool same_backend = options.backend.empty() || options.backend == known.backend;
    if (same_backend && (known.overrides || !options.allow_override)) return;
    Throw(ErrorCode::kFailedPrecondition, "library ", known.image->name,
          " is loaded already, as backend ", known.backend,
          known.overrides ? "" : " and without allow_override",
          "; unload it first, or ask for its own_copy");
  }
  static void Finalize(const LibraryImage& image) {
    if (!image.library->finalize) return;
    HostErrorScope message;
    CallGuarded([&] { return image.library->finalize(), OPKIT_OK; });
  }
  static std::string Reason() {
    const std::string& text = CurrentHostError().text;
    return text.empty() ? "it does not say why" : text;
  }
  static bool HasMangledEntry(const SharedObject& object) {
    for (const std::string& function : object.ExportedFunctions())
      if (function.find(OPKIT_LIBRARY_ENTRY) != std::string::npos) return true;
    return false;
  }
  static void CheckVersion(const LibraryCheck<LibraryImage>& checker,
                           const opkit_library& library) {
    if (library.abi_major == OPKIT_ABI_MAJOR) return;
    checker.Refuse(StrCat("was compiled for version ", library.abi_major, ".", library.abi_minor,
                          " of the ABI, this program has ", OPKIT_ABI_MAJOR, ".", OPKIT_ABI_MINOR),
                   StrCat("compile it with headers of ABI version ", OPKIT_ABI_MAJOR),
                   ErrorCode::kUnsupported);
  }
  // "libmy_ops.so" -> "my_ops".
  static std::string BackendOf(std::string name) {
    if (name.substr(0, 3) == "lib") name = name.substr(3);
    const size_t dot = name.find(".so");
    return dot == std::string::npos || dot == 0 ? name : name.substr(0, dot);
  }
  std::string UniqueName(const std::string& name) const {
    std::string unique = name;
    for (int n = 2; IsTaken([&](const Loaded& known) { return known.image->name == unique; }); ++n)
      unique = StrCat(name, " (", n, ")");
    return unique;
  }
  // Neither another library's nor that of a kernel that one of its operators has already.
  std::string UniqueBackend(const std::string& name, const opkit_library& library) const {
    const auto has = [](const std::string& op, const std::string& backend) {
      for (const Kernel* kernel : OpRegistry::Global().KernelsOf(op))
        if (kernel->backend == backend) return true;
      return false;
    };
    const auto is_free = [&](const std::string& backend) {
      bool taken = IsTaken([&](const Loaded& known) { return known.backend == backend; });
      for (uint64_t i = 0; i < library.num_ops && !taken; ++i)
        taken = has(library.ops[i]->name, backend) ||
                has(StrCat(library.ops[i]->name, "_backward"), backend);
      return !taken;
    };
    std::string unique = name;
    for (int n = 2; !is_free(unique); ++n) unique = StrCat(name, ".", n);
    return unique;
  }
  template <class Matches>
  bool IsTaken(Matches matches) const {
    for (const LoadedPtr& known : table_.libraries)
      if (matches(*known)) return true;
    return false;
  }

  // All of its operators, or none.
  void Register(Loaded& loaded, const LoadOptions& options) {
    const LibraryImage& image = *loaded.image;
    Host::Enable();
    try {
      for (uint64_t i = 0; i < image.library->num_ops; ++i) {
        const opkit_op& op = *image.library->ops[i];
        loaded.records.push_back(MakeLibraryRecord(loaded.image, op, loaded.in_use));
        ++loaded.idle_count;
        const bool exists = Exists(op.name);
        CheckGradientIsFree(image, op, *loaded.records.back(), exists);
        loaded.owns.push_back(!exists);
        RegisterOp(loaded, i);
        if (!exists || !options.allow_override) continue;
        OpRegistry::Global().AddOverride(op.name, loaded.backend, image.name);
        if (HasBackward(op))
          OpRegistry::Global().AddOverride(StrCat(op.name, "_backward"), loaded.backend,
                                           image.name);
      }
    } catch (...) {
      Unregister(loaded);
      throw;
    }
  }
  static bool Exists(const std::string& op) {
    return OpRegistry::Global().FindSchema(op) || !OpRegistry::Global().KernelsOf(op).empty();
  }
  // Whether an operator of the program may be the gradient operator of `record`: it has the inputs
  // and outputs of one.
  static bool MayDifferentiate(FunctionOpRecord& record, const std::string& backward) {
    const OpSchema* schema = OpRegistry::Global().FindSchema(backward);
    if (!schema) return true;
    try {
      const auto [inputs, outputs] = FunctionArity(record, Arguments());
      const auto [from, to] = schema->Arity(Arguments());
      const bool known = inputs >= 0 && outputs >= 0;
      return (!known || from < 0 || from == 2 * outputs + inputs) &&
             (inputs < 0 || to < 0 || to == inputs);
    } catch (const Error&) {  // it depends on attributes
      return true;
    }
  }
  // The operator <name>_backward is made for an operator with a backward function.
  static void CheckGradientIsFree(const LibraryImage& image, const opkit_op& op,
                                  FunctionOpRecord& record, bool exists) {
    if (!HasBackward(op) && !SaysGradient(op)) return;
    const std::string backward = StrCat(op.name, "_backward");
    const bool taken =
        HasBackward(op) && Exists(backward) && !(exists && MayDifferentiate(record, backward));
    if (exists && !taken) return;
    if (taken || GradientRegistry::Global().Find(op.name))
      Throw(ErrorCode::kAlreadyExists, "library ", image.name, " brings operator ", op.name,
            taken ? StrCat(" with a backward function, whose operator ", backward)
                  : std::string(" with a gradient, which"),
            " this program has already; rename it");
  }
  void RegisterOp(Loaded& loaded, size_t i) {
    const opkit_op& op = *loaded.image->library->ops[i];
    const FunctionRecord& record = loaded.records[i];
    Host host(record);
    const bool owns = loaded.owns[i];
    if (owns) {
      host.Begin();
      host.Doc();
      if (record->has_effects) host.HasEffects();
      Document(*host.schema(), op);
    }
    const std::string backend = owns ? std::string() : loaded.backend;
    for (uint64_t k = 0; k < op.num_kernels; ++k) {
      host.Add(record->devices[k], FunctionPass::kForward, backend);
      ++loaded.idle_count;
      if (!op.kernels[k]->backward) continue;
      AddGradient(loaded, i, host);  // before the kernel, which would
      host.Add(record->devices[k], FunctionPass::kBackward, backend);
      ++loaded.idle_count;
    }
    AddGradient(loaded, i, host);
  }
  // The operator's gradient is this library's, where it has none.
  void AddGradient(Loaded& loaded, size_t i, Host& host) {
    const opkit_op& op = *loaded.image->library->ops[i];
    const bool has_one = GradientRegistry::Global().Find(op.name);
    if (HasBackward(op)) {
      if (!has_one) loaded.gradients.push_back(op.name);
      if (!has_one || !Exists(StrCat(op.name, "_backward"))) host.AddBackward();
    } else if (!has_one && SaysGradient(op)) {
      loaded.gradients.push_back(op.name);
      GradientRegistry::Global().Add(op.name, MakeLibraryGradient(loaded.image, op));
    }
  }
  static void Document(OpSchema& schema, const opkit_op& op) {
    if (op.flags & OPKIT_OP_OPEN_ATTRS) schema.AllowUnknownArgs();
    const auto values = [](const opkit_parameter* const* all, uint64_t count, auto add) {
      for (uint64_t i = 0; i < count; ++i) {
        std::vector<DType> dtypes;
        for (int dtype = 1; dtype < kNumDTypes; ++dtype)
          if (all[i]->dtypes >> dtype & 1) dtypes.push_back(static_cast<DType>(dtype));
        add(static_cast<int>(i), all[i]->name, all[i]->doc ? all[i]->doc : "", std::move(dtypes));
      }
    };
    values(op.inputs, op.num_inputs, [&](auto... parts) { schema.Input(std::move(parts)...); });
    values(op.outputs, op.num_outputs, [&](auto... parts) { schema.Output(std::move(parts)...); });
    for (uint64_t i = 0; i < op.num_attrs; ++i) {
      const opkit_parameter& from = *op.attrs[i];
      AttributeSchema attribute;
      attribute.name = from.name;
      attribute.doc = from.doc ? from.doc : "";
      attribute.required = from.required != 0;
      if (from.type >= 0 && from.type <= OPKIT_ATTR_TENSORS)
        attribute.type = static_cast<AttributeType>(from.type);
      if (from.default_value) {
        const opkit_attr* one = from.default_value;
        attribute.default_value = (*ArgumentsOfAbi(&one, 1).begin()).value;
      }
      schema.Arg(std::move(attribute));
    }
  }
  void Unregister(Loaded& loaded) {
    OpRegistry::Global().RemoveOrigin(loaded.image->name);
    for (const std::string& op : loaded.gradients) GradientRegistry::Global().Remove(op);
    loaded.gradients.clear();
  }
  // Operators and gradients that other libraries have as well become theirs.
  void AdoptOrphans(const Loaded& gone) {
    for (size_t i = 0; i < gone.records.size(); ++i) {
      bool adopted = !gone.owns[i];
      for (const LoadedPtr& other : table_.libraries)
        for (size_t k = 0; k < other->records.size(); ++k) {
          if (other->records[k]->name != gone.records[i]->name) continue;
          if (!adopted && !other->owns[k]) {
            other->owns[k] = adopted = true;
            RegisterOp(*other, k);
          } else {
            Host host(other->records[k]);
            AddGradient(*other, k, host);
          }
        }
    }
  }

  LibraryTable& table_;
};

}  // namespace detail

// A handle, copied freely; the library stays loaded until Unload, whether a handle is left or not.
// Loading and unloading may come from any thread; unloading not while another creates operators of
// the library.
//
//   Library lib = Library::Load("build/libmy_ops.so");
//   std::vector<Tensor> y = Invoke("my_gemm", {a, b});
template <class Loaded>
class BasicLibrary {
 public:
  // Registers every operator of the file, or none. The same unchanged file is loaded once. An
  // operator that exists already gets another backend. Errors: kNotFound for a missing file;
  // kUnsupported for another machine's and another version of the ABI; kInvalidArgument for what is
  // no such library or is wrong in it; kAlreadyExists for two operators of a name in it; what its
  // initialize reports.
  static BasicLibrary Load(const std::string& path, const LoadOptions& options = {}) {
    auto& table = detail::LibraryTable::Global();
    detail::MutexLock lock(table.mutex);
    return BasicLibrary(detail::LibraryLoader<Loaded>(table).LoadFile(path, options));
  }
  // The operators that this program itself hands over: of a unit that includes author.hpp.
  static BasicLibrary LoadEntry(opkit_library_entry_function entry, const std::string& name,
                                const LoadOptions& options = {}) {
    if (!entry || name.empty())
      Throw(ErrorCode::kInvalidArgument, "LoadEntry needs an entry and a name for the library");
    auto& table = detail::LibraryTable::Global();
    detail::MutexLock lock(table.mutex);
    return BasicLibrary(detail::LibraryLoader<Loaded>(table).Load({}, entry, name, name, options));
  }
  // Those that are loaded.
  static std::vector<BasicLibrary> All() {
    auto& table = detail::LibraryTable::Global();
    detail::MutexLock lock(table.mutex);
    std::vector<BasicLibrary> all;
    for (const auto& library : table.libraries) all.push_back(BasicLibrary(library));
    return all;
  }

  // The file's name, with a number behind it when it is not the first of that name.
  const std::string& name() const { return image().name; }
  const std::string& path() const { return loaded_->path; }
  // What its kernels are called for operators that existed before.
  const std::string& backend() const { return loaded_->backend; }
  // Of the toolkit that it was compiled with; empty where it does not say.
  std::string version() const {
    const char* version = image().library->version;
    return version ? version : "";
  }
  std::pair<uint32_t, uint32_t> abi_version() const {
    return {image().library->abi_major, image().library->abi_minor};
  }
  // Names, in the library's order.
  std::vector<std::string> operators() const {
    static_cast<void>(image());
    std::vector<std::string> names;
    for (const auto& record : loaded_->records) names.push_back(record->name);
    return names;
  }
  bool is_loaded() const { return static_cast<bool>(loaded_->image); }

  // Removes every registration and unmaps the file, where nothing in it holds it. Error
  // (kFailedPrecondition), and nothing changes, while an operator or plan of it is alive.
  UnloadReport Unload() {
    auto& table = detail::LibraryTable::Global();
    detail::MutexLock lock(table.mutex);
    return detail::LibraryLoader<Loaded>(table).Unload(loaded_);
  }

  friend bool operator==(const BasicLibrary&, const BasicLibrary&) = default;

 private:
  explicit BasicLibrary(detail::IntrusivePtr<Loaded> loaded) : loaded_(std::move(loaded)) {}
  const detail::LibraryImage& image() const {
    if (!loaded_->image)
      Throw(ErrorCode::kFailedPrecondition, "library ", loaded_->path, " is unloaded");
    return *loaded_->image;
  }
  detail::IntrusivePtr<Loaded> loaded_;
};
using Library = BasicLibrary<detail::LoadedLibrary>;

}  // namespace opkit

#endif  // OPKIT_PLUGIN_LIBRARY_HPP_
