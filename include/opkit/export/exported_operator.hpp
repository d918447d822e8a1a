// ExportedOperator: an operator that this image exports to a host, and the domain of all of them.
// The macros of the hosts' headers make these objects.
#ifndef OPKIT_EXPORT_EXPORTED_OPERATOR_HPP_
#define OPKIT_EXPORT_EXPORTED_OPERATOR_HPP_

#include <atomic>

#include "opkit/op/op_registry.hpp"

// Defined by OPKIT_EXPORT_DOMAIN.
extern "C" __attribute__((weak, visibility("hidden"))) const char opkit_export_domain[];

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Returns the text of OPKIT_EXPORT_DOMAIN; "opkit" for an image without it. Works in static
// initialisers too.
OPKIT_IMAGE_LOCAL inline const char* ExportDomain() {
  return opkit_export_domain ? opkit_export_domain : "opkit";
}

// Registers the operators of REGISTER_OP in units with opkit/op.hpp, which the library otherwise
// only describes to the program that loads it, in this image's own registries too: a host of
// export/ calls them there. Does nothing for operators that are registered already. Thread-safe.
OPKIT_IMAGE_LOCAL void RegisterLibraryOperators();

// An operator and the host to which this image exports it. The host's macro makes it as a constant,
// so that static initialisers of other units may use it.
class OPKIT_IMAGE_LOCAL ExportedOperator {
 public:
  // With `gradient_of`: the gradient of that operator (gradient_operator.hpp), by its name.
  constexpr explicit ExportedOperator(const char* name, const char* gradient_of = nullptr)
      : name_(name), gradient_of_(gradient_of) {}
  ExportedOperator(ExportedOperator&&) = delete;

  const char* name() const { return name_; }
  // Returns the schema, which the first call looks up. Call it after static initialisation. Throws
  // kNotFound, with the names that there are, for an operator that this image does not register;
  // and the errors of OpRegistry::GetSchema, for a gradient also those of GradientOperatorSchema.
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

  const char *name_, *gradient_of_;
  mutable std::atomic<const OpSchema*> schema_{nullptr};
  ExportedOperator* next_ = nullptr;
};

// The operators that the macros of one host's header name, in the order of initialisation.
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

OPKIT_IMAGE_LOCAL inline constinit ExportList g_onnxruntime_operators, g_tvm_ffi_operators,
    g_xla_operators, g_torch_operators;

}}}  // namespace opkit::detail

// Names the domain of a shared object's exported operators: ONNX Runtime's domain and torch's
// namespace. Write it once in a shared object, at namespace scope:
//   OPKIT_EXPORT_DOMAIN("mine");
// A second one does not link. Programs read the domain by the C function
// opkit_export_domain_name(), which a shared object with this macro has.
#define OPKIT_EXPORT_DOMAIN(domain)                                                             \
  OPKIT_AT_NAMESPACE_SCOPE(OPKIT_EXPORT_DOMAIN);                                                \
  extern "C" __attribute__((visibility("hidden")))                                              \
  const char opkit_export_domain_stands_twice_in_this_library = 0;                              \
  extern "C" __attribute__((visibility("default"))) const char* opkit_export_domain_name(void); \
  extern "C" const char* opkit_export_domain_name() { return domain; }                          \
  extern "C" __attribute__((visibility("hidden"))) const char opkit_export_domain[] = domain

#ifdef OPKIT_DEFINITIONS
#include "opkit/export/impl/exported_operator.ipp"
#endif

#endif  // OPKIT_EXPORT_EXPORTED_OPERATOR_HPP_
