// expect: OPKIT_LIBRARY_INITIALIZE goes at namespace scope, outside of functions and classes
// expect: OPKIT_LIBRARY_FINALIZE goes at namespace scope, outside of functions and classes
// expect: REGISTER_OP goes at namespace scope, outside of functions and classes
#include "opkit/op.hpp"

using namespace opkit;

inline int Forward(const AttrMap&, std::span<const OpTensor>, std::span<OpTensor>, OpResource&) {
  return SUCCESS;
}
void Place0() {
  OPKIT_LIBRARY_INITIALIZE([](int, int) { return SUCCESS; });
}
void Place1() {
  OPKIT_LIBRARY_FINALIZE([] {});
}
void Place2() { REGISTER_OP(made).setForward(Forward); }
