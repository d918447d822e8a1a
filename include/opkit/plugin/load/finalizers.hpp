// Calls the finalizers of loaded libraries, each once: when its library is unloaded, or when the
// process ends, before the destructors of static objects. Included by the definitions of
// library.hpp.
#ifndef OPKIT_PLUGIN_LOAD_FINALIZERS_HPP_
#define OPKIT_PLUGIN_LOAD_FINALIZERS_HPP_

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "opkit/op/boundary/host/host_table.hpp"
#include "opkit/op/function/function_calls.hpp"
#include "opkit/plugin/load/shared_object.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// True while this thread loads, unloads or finalizes a library.
OPKIT_IMAGE_LOCAL inline constinit thread_local bool t_has_library_table = false;

// Finalizers that are still to be called. exit() calls functions registered with atexit and
// destructors of static objects, the last registered first. Therefore CallAll is registered again
// whenever a library may have made static objects: when it is loaded, and when a function of its
// kernel has returned for the first time.
class Finalizers {
 public:
  // True once the process ends. A library's own objects may then be destroyed before the operators
  // that the program still holds.
  static bool ProcessEnds() { return Global().process_ends_.load(std::memory_order_relaxed); }

  // Adds the finalizer of an initialized library. Call must come before the end of `image`.
  static void Add(const LibraryImage& image) {
    Finalizers& self = Global();
    const std::lock_guard lock(self.mutex_);
    self.pending_.push_back({&image, getpid()});
    Register();
  }
  // Calls the finalizer, unless it was called before. Returns the reason of its failure; empty
  // after success.
  static std::string Call(const LibraryImage& image) {
    Finalizers& self = Global();
    const std::lock_guard lock(self.mutex_);
    if (!std::erase_if(self.pending_, [&](const Pending& one) { return one.image == &image; }))
      return {};
    return Finalize(image);
  }
  static void Register() {
    std::atexit([] { Global().CallAll(); });
  }

 private:
  struct Pending {
    const LibraryImage* image;
    pid_t process;
  };
  static Finalizers& Global() {
    static auto* finalizers = new Finalizers;  // operators may outlive every static object
    return *finalizers;
  }
  // Calls all finalizers, the last added first. A forked child skips its parent's: it lacks the
  // parent's threads and shares its files.
  void CallAll() {
    process_ends_.store(true, std::memory_order_relaxed);
    const std::lock_guard lock(mutex_);
    while (!pending_.empty()) {
      const Pending last = pending_.back();
      pending_.pop_back();
      if (last.process != getpid()) continue;
      if (const std::string why = Finalize(*last.image); !why.empty())
        WriteLog(LogLevel::kError, last.image->name, StrCat("its finalize failed: ", why));
    }
  }
  // Calls a library's finalize, which returns nothing. If finalize threw, returns the text that the
  // library reported to the host; else an empty text.
  static std::string Finalize(const LibraryImage& image) {
    if (!image.library->finalize) return {};
    const bool had_table = std::exchange(t_has_library_table, true);
    const HostErrorScope message;
    CallGuarded([&] { return image.library->finalize(), OPKIT_OK; });
    t_has_library_table = had_table;
    return CurrentHostError().text;
  }

  std::recursive_mutex mutex_;  // held while a finalizer runs, which may call exit()
  std::vector<Pending> pending_;
  std::atomic<bool> process_ends_{false};  // relaxed: publishes nothing
};

// Records which functions of a kernel have returned at least once.
class KernelCalls : public RefCounted {
 public:
  enum Function : unsigned { kCreate = 1, kForward = 2, kBackward = 4 };
  void Returned(Function function) {
    if (!(seen_.fetch_or(function, std::memory_order_relaxed) & function))  // relaxed: bits alone
      Finalizers::Register();
  }

 private:
  std::atomic<unsigned> seen_{0};
};

}}}  // namespace opkit::detail

#endif  // OPKIT_PLUGIN_LOAD_FINALIZERS_HPP_
