// The parts that the exports to all hosts share: the operators that an image exports and their
// domain, operators that are kept ready between calls, attributes in the form that the schema
// declares, and errors. A header for each host stands beside this one.
#ifndef OPKIT_EXPORT_CORE_HPP_
#define OPKIT_EXPORT_CORE_HPP_

#include <memory>
#include <mutex>

#include "opkit/export/ready_operator.hpp"

// Defined by OPKIT_EXPORT_DOMAIN.
extern "C" __attribute__((weak, visibility("hidden"))) const char opkit_export_domain[];

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Returns the text of OPKIT_EXPORT_DOMAIN; "opkit" for an image without it. Works in static
// initialisers too.
OPKIT_IMAGE_LOCAL inline const char* ExportDomain() {
  return opkit_export_domain ? opkit_export_domain : "opkit";
}

// One operator that this image exports to one host. The host's macro makes it as a constant, so
// that static initialisers of other units may use it.
class OPKIT_IMAGE_LOCAL ExportedOperator {
 public:
  constexpr explicit ExportedOperator(const char* name) : name_(name) {}
  ExportedOperator(ExportedOperator&&) = delete;

  const char* name() const { return name_; }
  // Returns the schema, which the first call looks up. Call it after static initialisation. Throws
  // the errors of OpRegistry::GetSchema.
  const OpSchema& schema() const {
    const OpSchema* found = schema_.load(std::memory_order_acquire);
    return found ? *found : FindSchema();
  }
  // True if the operator keeps state between runs, or its runs may differ. It needs an instance
  // that the host's program owns, and a plain call of it is refused (RefuseState).
  bool needs_instance() const { return schema().is_stateful(); }
  const ExportedOperator* next() const { return next_; }

 private:
  friend class ExportList;
  const OpSchema& FindSchema() const;

  const char* name_;
  mutable std::atomic<const OpSchema*> schema_{nullptr};
  ExportedOperator* next_ = nullptr;
};

// The operators that the macros of one host's header name, in the order of initialisation.
//   OPKIT_IMAGE_LOCAL inline constinit ExportList g_xla_operators;
//   for (const ExportedOperator* op = g_xla_operators.first(); op; op = op->next()) …
class OPKIT_IMAGE_LOCAL ExportList {
 public:
  // Returns true, for the initialiser of a static variable.
  bool Add(ExportedOperator& op) noexcept {
    (last_ ? last_->next_ : first_) = &op;
    last_ = &op;
    return true;
  }
  const ExportedOperator* first() const { return first_; }

 private:
  ExportedOperator *first_ = nullptr, *last_ = nullptr;
};

// Throws kFailedPrecondition: a plain call of an operator with needs_instance(). `mend` says how
// this host makes an instance.
[[noreturn]] OPKIT_COLD OPKIT_IMAGE_LOCAL void RefuseState(const ExportedOperator& op,
                                                           const char* mend);
// Throws kUnsupported if a node with these attributes writes to its inputs, which `host` forbids.
OPKIT_IMAGE_LOCAL void RefuseMutation(const ExportedOperator& op, int num_inputs,
                                      const Arguments& args, const char* host);

// Returns a host's value in the form that the schema declares: an integer as a float, 0 and 1 as a
// bool, and the same for the elements of lists; an empty list of any type. Other values are
// returned unchanged, and making the operator reports a wrong type. `declared` may be null.
OPKIT_IMAGE_LOCAL Attribute FitAttribute(const AttributeSchema* declared, Attribute value);

// The class of Python's exceptions for an error: "ValueError", "TypeError", "LookupError",
// "IndexError", "MemoryError", "NotImplementedError", "OSError", "TimeoutError" or "RuntimeError".
constexpr const char* PythonClassOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kUninitialized:
      return "ValueError";
    case ErrorCode::kTypeMismatch:
      return "TypeError";
    case ErrorCode::kNotFound:
      return "LookupError";
    case ErrorCode::kOutOfRange:
      return "IndexError";
    case ErrorCode::kOutOfMemory:
      return "MemoryError";
    case ErrorCode::kUnsupported:
      return "NotImplementedError";
    case ErrorCode::kDeadlineExceeded:
      return "TimeoutError";
    case ErrorCode::kIo:
      return "OSError";
    default:
      return "RuntimeError";
  }
}

// Returns call(), or fail(code, text) if it throws anything. A boundary of C lets no exception
// pass.
template <class Call, class Fail>
auto GuardBoundary(Call&& call, Fail&& fail) noexcept -> decltype(call()) {
  try {
    return call();
  } catch (...) {
    ErrorCode code = ErrorCode::kOutOfMemory;
    const char* text = "out of memory";
    std::optional<Error> error;
    try {
      error.emplace(CurrentError());
      code = error->code();
      text = error->what();
    } catch (...) {  // no memory for the Error
    }
    return fail(code, text);
  }
}

// The raw bytes of a call's facts: its attributes, which inputs are left out, the device. Two calls
// with equal bytes may use the same ready operator. Allocates only beyond 256 bytes.
class OPKIT_IMAGE_LOCAL CallKey {
 public:
  void AddBytes(const void* bytes, size_t count) {
    if (count <= sizeof inline_ - size_ && long_.empty()) [[likely]]
      std::memcpy(inline_ + size_, bytes, count);
    else
      AddLong(bytes, count);
    size_ += count;
  }
  // T has no padding.
  template <class T>
  void Add(const T& value) {
    static_assert(std::has_unique_object_representations_v<T> || std::is_floating_point_v<T>);
    AddBytes(&value, sizeof value);
  }
  // Adds the length too, so that two texts are not taken for one.
  void AddText(std::string_view text) {
    Add(text.size());
    AddBytes(text.data(), text.size());
  }
  std::string_view bytes() const { return {long_.empty() ? inline_ : long_.data(), size_}; }

 private:
  void AddLong(const void* bytes, size_t count);

  size_t size_ = 0;
  char inline_[256];
  std::string long_;
};

// The right to make one call with a ready operator. Ends the call by ReadyOperator::Release.
class OPKIT_IMAGE_LOCAL Lease {
 public:
  // Calls end(owner, op) at last; `end` may be null.
  using End = void (*)(void* owner, ReadyOperator* op);
  Lease(ReadyOperator& op, End end, void* owner) : op_(&op), end_(end), owner_(owner) {}
  Lease(Lease&& other) noexcept : op_(other.op_), end_(other.end_), owner_(other.owner_) {
    other.op_ = nullptr;
  }
  ~Lease() {
    if (!op_) return;
    op_->Release();
    if (end_) end_(owner_, op_);
  }
  ReadyOperator& operator*() const { return *op_; }
  ReadyOperator* operator->() const { return op_; }

 private:
  ReadyOperator* op_;
  End end_;
  void* owner_;
};

using MakeReadyOperator = FunctionRef<std::unique_ptr<ReadyOperator>()>;
// Returns this thread's operator for the key; `make` makes it if there is none. A thread keeps the
// 16 operators that it used last. A call from inside of a call gets an operator of its own. Throws
// what `make` throws. Costs about 20 ns if the operator is kept.
OPKIT_IMAGE_LOCAL Lease KeptOperator(const ExportedOperator& op, const CallKey& key,
                                     MakeReadyOperator make);

// The ready operators of one kernel of a host that runs the kernel in several threads at once.
// Thread-safe. A stateful operator has one ready operator, and a call waits for the call before it.
class OPKIT_IMAGE_LOCAL OperatorPool {
 public:
  // Makes one operator, so that wrong attributes are an Error when the host makes the kernel.
  // Throws the errors of ReadyOperator.
  OperatorPool(const ExportedOperator& op, std::vector<int> present, Arguments args,
               Device device = {}, int num_outputs = -1);
  // Returns an idle operator, or makes one.
  Lease Take();
  const ExportedOperator& exported() const { return op_; }
  const Arguments& args() const { return args_; }

 private:
  std::unique_ptr<ReadyOperator> Make() const;

  const ExportedOperator& op_;
  const std::vector<int> present_;
  const Arguments args_;
  const Device device_;
  const int num_outputs_;
  const bool one_at_a_time_;
  std::mutex mutex_;  // guards idle_; of a stateful operator: held during a call
  std::vector<std::unique_ptr<ReadyOperator>> idle_;
};

}}}  // namespace opkit::detail

// Names the domain of a shared object's exported operators: ONNX Runtime's domain and torch's
// namespace. Write it once in a shared object, at namespace scope:
//   OPKIT_EXPORT_DOMAIN("mine");
// A second one does not link.
#define OPKIT_EXPORT_DOMAIN(domain)                                \
  OPKIT_AT_NAMESPACE_SCOPE(OPKIT_EXPORT_DOMAIN);                   \
  extern "C" __attribute__((visibility("hidden")))                 \
  const char opkit_export_domain_stands_twice_in_this_library = 0; \
  extern "C" __attribute__((visibility("hidden"))) const char opkit_export_domain[] = domain

#ifdef OPKIT_DEFINITIONS
#include "opkit/export/impl/core.ipp"
#endif

#endif  // OPKIT_EXPORT_CORE_HPP_
