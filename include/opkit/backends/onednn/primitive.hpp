// OnednnPrimitive: a primitive of oneDNN with the memories of its arguments, made once for the
// shapes of an operator and run many times.
#ifndef OPKIT_BACKENDS_ONEDNN_PRIMITIVE_HPP_
#define OPKIT_BACKENDS_ONEDNN_PRIMITIVE_HPP_

#include "opkit/backends/onednn/layout.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// What a primitive is made of: its descriptor's members that a run needs.
struct OnednnParts {
  dnnl::primitive primitive;
  std::vector<std::pair<int, dnnl::memory::desc>> arguments;  // in the order that Run gets them
  dnnl::memory::desc scratchpad;
};

// Not thread-safe, as the operator that has it is not.
class OnednnPrimitive {
 public:
  // Forgets the primitives, because the shapes are others.
  void Clear() { made_.clear(); }

  // Runs on these pointers; `make` makes the parts where there are none for the number of threads
  // that this call may use. `op` lends its scratch memory. Errors: what oneDNN refuses is an
  // UnsupportedOperatorFeature.
  template <class Make>
  void Run(OperatorBase& op, std::initializer_list<const void*> pointers, Make make) {
    try {
      const OnednnCall call;
      Made& made = For(call.threads(), make);
      size_t i = 0;
      for (const void* pointer : pointers) {
        if (!pointer) continue;  // an optional argument, which `make` left out too
        made.memories[i++].set_data_handle(const_cast<void*>(pointer));
      }
      if (made.scratch_bytes > 0) made.memories[i].set_data_handle(op.Scratch(made.scratch_bytes));
      // Not execute(), which builds a map of the arguments.
      dnnl::error::wrap_c_api(
          dnnl_primitive_execute(made.primitive.get(), OnednnStream().get(),
                                 static_cast<int>(made.arguments.size()), made.arguments.data()),
          "could not run");
    } catch (const dnnl::error& error) {
      throw UnsupportedOperatorFeature(StrCat("oneDNN has no kernel for it: ", error.what()));
    }
  }

 private:
  struct Made {
    int threads;
    dnnl::primitive primitive;
    std::vector<dnnl::memory> memories;
    std::vector<dnnl_exec_arg_t> arguments;
    int64_t scratch_bytes;
  };
  template <class Make>
  Made& For(int threads, Make& make) {
    for (Made& one : made_)
      if (one.threads == threads) return one;
    OnednnParts parts = make();
    Made one{threads, std::move(parts.primitive), {}, {}, 0};
    const auto add = [&](int kind, const dnnl::memory::desc& desc) {
      one.memories.push_back(dnnl::memory(desc, OnednnEngine(), DNNL_MEMORY_NONE));
      one.arguments.push_back({kind, one.memories.back().get()});
    };
    for (const auto& [kind, desc] : parts.arguments) add(kind, desc);
    one.scratch_bytes = static_cast<int64_t>(parts.scratchpad.get_size());
    if (one.scratch_bytes > 0) add(DNNL_ARG_SCRATCHPAD, parts.scratchpad);
    made_.push_back(std::move(one));
    return made_.back();
  }

  std::vector<Made> made_;  // one for each number of threads that was met
};

// Scratch memory is the toolkit's, whose plans share it among operators.
inline dnnl::primitive_attr OnednnAttributes() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_BACKENDS_ONEDNN_PRIMITIVE_HPP_
