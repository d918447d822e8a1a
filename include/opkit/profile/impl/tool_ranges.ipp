// Implements the two protocols by which tools offer their functions to a process.
#ifndef OPKIT_PROFILE_IMPL_TOOL_RANGES_IPP_
#define OPKIT_PROFILE_IMPL_TOOL_RANGES_IPP_

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <map>

#include "opkit/base/error.hpp"
#include "opkit/profile/tool_ranges.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

inline void* OpenTool(const std::string& library) {
  if (void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
  Throw(ErrorCode::kNotFound, "cannot load the tool's library: ", dlerror());
}
template <class Function>
Function ToolSymbol(void* handle, const char* name) {
  return reinterpret_cast<Function>(dlsym(handle, name));
}

// A tool of NVTX 3: its library's initialiser requests tables of pointers by number and fills in
// its own functions (nvtxTypes.h of the CUDA toolkit lists the numbers).
class NvtxRanges final : public ToolRanges {
 public:
  explicit NvtxRanges(const std::string& library) {
    void* const handle = OpenTool(library);
    const auto start =
        ToolSymbol<int (*)(const void* (*)(uint32_t))>(handle, "InitializeInjectionNvtx2");
    if (!start)
      Throw(ErrorCode::kNotFound, "'", library, "' has no InitializeInjectionNvtx2: it is no tool ",
            "for NVTX");
    for (int i = 0; i < kFunctions; ++i) slots_[i] = &functions_[i];
    Loading() = this;
    const int started = start(&ExportTable);
    Loading() = nullptr;
    push_ = reinterpret_cast<Push_*>(functions_[kRangePushA]);
    pop_ = reinterpret_cast<Pop_*>(functions_[kRangePop]);
    if (!started || !push_ || !pop_)
      Throw(ErrorCode::kNotFound, "the tool in '", library, "' takes no ranges by NVTX");
  }
  void Push(const std::string& name) const override { push_(name.c_str()); }
  void Pop() const override { pop_(); }

 private:
  using Function = void (*)();
  using Push_ = int(const char*);
  using Pop_ = int();
  // NVTX's numbers: the core module, two functions in its table, the table's size without its null.
  static constexpr int kCore = 1, kRangePushA = 9, kRangePop = 11, kFunctions = 16;
  static constexpr uint32_t kCallbacks = 1;
  struct Callbacks {
    size_t struct_size;
    int (*get_module_table)(int module, Function*** table, unsigned* size);
  };

  // The object that is being loaded: the protocol's callbacks cannot carry a pointer to it.
  static NvtxRanges*& Loading() {
    static NvtxRanges* loading = nullptr;
    return loading;
  }
  static const void* ExportTable(uint32_t table) {
    static const Callbacks callbacks{sizeof(Callbacks), &ModuleTable};
    return table == kCallbacks ? &callbacks : nullptr;
  }
  static int ModuleTable(int module, Function*** table, unsigned* size) {
    if (module != kCore || !Loading()) return 0;
    if (table) *table = Loading()->slots_;
    if (size) *size = kFunctions;
    return 1;
  }

  Function functions_[kFunctions] = {};
  Function* slots_[kFunctions + 1] = {};
  Push_* push_ = nullptr;
  Pop_* pop_ = nullptr;
};

// A tool of ITT API 3: the collector receives a description of the process's functions and fills in
// their pointers. Older collectors export the functions by name (ittnotify_config.h of Intel's
// ittapi).
class IttRanges final : public ToolRanges {
 public:
  explicit IttRanges(const std::string& library) {
    void* const handle = OpenTool(library);
    if (const auto start = ToolSymbol<void (*)(Process*, int)>(handle, "__itt_api_init"))
      start(&process_, kAllGroups);
    else
      for (Entry* entry = entries_; entry->name; ++entry)
        *entry->function = dlsym(handle, entry->name);
    if (!task_begin_ || !task_end_)
      Throw(ErrorCode::kNotFound, "the tool in '", library,
            "' has neither __itt_api_init nor __itt_task_begin: it takes no tasks by ITT");
    domain_ = domain_create_ ? reinterpret_cast<Domain* (*)(const char*)>(domain_create_)("opkit")
                             : nullptr;
    if (!domain_) domain_ = process_.domains = &own_domain_;
  }
  void Push(const std::string& name) const override {
    reinterpret_cast<void (*)(const Domain*, Id, Id, Handle*)>(task_begin_)(domain_, {}, {},
                                                                            HandleOf(name));
  }
  void Pop() const override { reinterpret_cast<void (*)(const Domain*)>(task_end_)(domain_); }

 private:
  // Id to Process have the layout of the protocol's structs in ittnotify_config.h.
  struct Id {
    unsigned long long words[3] = {};
  };
  struct Domain {
    volatile int flags = 1;  // enabled
    const char* name = nullptr;
    void* wide_name = nullptr;
    int extra1 = 0;
    void* extra2 = nullptr;
    Domain* next = nullptr;
  };
  struct Handle {
    const char* text = nullptr;
    void* wide_text = nullptr;
    int extra1 = 0;
    void* extra2 = nullptr;
    Handle* next = nullptr;
  };
  struct Entry {
    const char* name;
    void** function;
    void* initial;
    void* none;
    int group;
  };
  struct Process {
    unsigned char magic[8] = {0xED, 0xAB, 0xAB, 0xEC, 0x0D, 0xEE, 0xDA, 0x30};
    unsigned long version[3] = {3, 25, 0};
    volatile long is_initialized = 0, has_mutex = 0, counter = 0;
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    void* library = nullptr;
    void* error_handler = nullptr;
    const char** path = nullptr;
    Entry* entries = nullptr;
    Process* next = nullptr;
    void* threads = nullptr;
    Domain* domains = nullptr;
    Handle* strings = nullptr;
    int state = 0;
    void* counters = nullptr;
    unsigned collect_events = 0;
    void* histograms = nullptr;
    void* counter_metadata = nullptr;
  };
  static constexpr int kAllGroups = -1, kStructure = 1 << 12;

  // Returns the tool's handle for a name. Handles are kept, since a tool keeps their pointers.
  Handle* HandleOf(const std::string& name) const {
    MutexLock lock(mutex_);
    const auto [place, is_new] = handles_.try_emplace(name);
    if (is_new) {
      if (string_handle_create_)
        place->second.made =
            reinterpret_cast<Handle* (*)(const char*)>(string_handle_create_)(place->first.c_str());
      place->second.own.text = place->first.c_str();
    }
    return place->second.made ? place->second.made : &place->second.own;
  }

  // A name's handle: `made` by the tool, or `own` if the tool makes none.
  struct Known {
    Handle own;
    Handle* made = nullptr;
  };
  void *domain_create_ = nullptr, *string_handle_create_ = nullptr, *task_begin_ = nullptr,
       *task_end_ = nullptr;
  Entry entries_[5] = {
      {"__itt_domain_create", &domain_create_, nullptr, nullptr, kStructure},
      {"__itt_string_handle_create", &string_handle_create_, nullptr, nullptr, kStructure},
      {"__itt_task_begin", &task_begin_, nullptr, nullptr, kStructure},
      {"__itt_task_end", &task_end_, nullptr, nullptr, kStructure},
      {nullptr, nullptr, nullptr, nullptr, 0}};
  Process process_ = {.entries = entries_};
  Domain own_domain_ = {.name = "opkit"};
  const Domain* domain_ = nullptr;
  mutable Mutex mutex_;
  mutable std::map<std::string, Known> handles_;  // guarded by mutex_
};

class BothRanges final : public ToolRanges {
 public:
  BothRanges(const ToolRanges* first, const ToolRanges* second) : first_(first), second_(second) {}
  void Push(const std::string& name) const override {
    first_->Push(name);
    second_->Push(name);
  }
  void Pop() const override {
    second_->Pop();
    first_->Pop();
  }

 private:
  const ToolRanges* const first_;
  const ToolRanges* const second_;
};

OPKIT_INLINE const ToolRanges* ToolRanges::LoadNvtx(const std::string& library) {
  return new NvtxRanges(library);
}
OPKIT_INLINE const ToolRanges* ToolRanges::LoadItt(const std::string& library) {
  return new IttRanges(library);
}
OPKIT_INLINE const ToolRanges* ToolRanges::Global() {
  const auto of_variable = [](const char* variable,
                              const ToolRanges* (*load)(const std::string&)) -> const ToolRanges* {
    const char* const library = std::getenv(variable);
    if (!library || !*library) return nullptr;
    try {
      return load(library);
    } catch (const Error& error) {
      std::fprintf(stderr, "opkit: %s: %s\n", variable, error.what());
      return nullptr;
    }
  };
  static const ToolRanges* const tools = [&]() -> const ToolRanges* {
    const ToolRanges* const nvtx = of_variable("NVTX_INJECTION64_PATH", &LoadNvtx);
    const ToolRanges* const itt = of_variable("INTEL_LIBITTNOTIFY64", &LoadItt);
    if (nvtx && itt) return new BothRanges(nvtx, itt);
    return nvtx ? nvtx : itt;
  }();
  return tools;
}

}}}  // namespace opkit::detail

#endif  // OPKIT_PROFILE_IMPL_TOOL_RANGES_IPP_
