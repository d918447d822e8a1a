// expect: OPKIT_LIBRARY_INITIALIZE_goes_at_namespace_scope_not_in_a_class
// expect: OPKIT_LIBRARY_FINALIZE_goes_at_namespace_scope_not_in_a_class
// expect: REGISTER_OP_goes_at_namespace_scope_not_in_a_class
#include "opkit/op.hpp"

using namespace opkit;

inline int Forward(const AttrMap&, std::span<const OpTensor>, std::span<OpTensor>, OpResource&) {
  return SUCCESS;
}
struct Place0 {
  OPKIT_LIBRARY_INITIALIZE([](int, int) { return SUCCESS; });
};
struct Place1 {
  OPKIT_LIBRARY_FINALIZE([] {});
};
struct Place2 {
  REGISTER_OP(made).setForward(Forward);
};
