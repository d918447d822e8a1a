// An author's mistakes, one at a time: OPKIT_TEST_WRONG in the environment selects one.
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "opkit/plugin/author.hpp"

namespace {
using namespace opkit;  // NOLINT: as an author writes it

std::string Wish() {
  const char* wish = std::getenv("OPKIT_TEST_WRONG");
  return wish ? wish : "";
}
void Forward(const AttrMap&, std::span<const OpTensor>, std::span<OpTensor>, OpResource&) {}

template <int inputs, int outputs>
void Count(const AttrMap&, int* num_in, int* num_out) {
  *num_in = inputs;
  *num_out = outputs;
}
void NoShapes(const AttrMap&, ShapeVectors&, ShapeVectors&) {}

int Initialize(int, int) {
  const std::string wish = Wish();
  if (wish == "initialize fails") {
    OPKIT_ERROR_MSG << "no device " << 7;
    return FAIL;
  }
  if (wish == "initialize fails in silence") return FAIL;
  if (wish == "initialize throws") throw std::runtime_error("no licence");
  if (wish == "initialize throws an Error") Throw(ErrorCode::kNotFound, "no such file");
  if (wish == "initialize throws a number") throw 5;
  return SUCCESS;
}
OPKIT_LIBRARY_INITIALIZE(Initialize);

REGISTER_OP(LibRight).setForward(Forward).setParseAttrs(Count<0, 0>);

// Static initialisers, as REGISTER_OP writes them.
const bool kRegistered = [] {
  const std::string wish = Wish();
  const auto add = [](const char* name, int line) {
    return LibraryOpBuilder(name, __FILE__, line);
  };
  if (wish == "two of a name") add("LibRight", 1).setForward(Forward);
  if (wish == "empty name") add("", 3).setForward(Forward);
  if (wish == "long name") add(std::string(300, 'a').c_str(), 4).setForward(Forward);
  if (wish == "control character") add("a\nb", 5).setForward(Forward);
  if (wish == "no forward") add("LibBackwardOnly", 6).setBackward(Forward);
  if (wish == "nothing") add("LibNothing", 7);
  if (wish == "forward twice") add("LibTwice", 8).setForward(Forward).setForward(Forward);
  if (wish == "device") add("LibOnTpu", 9).setForward(Forward, "tpu");
  if (wish == "no parseAttrs") add("LibBare", 12).setForward(Forward).setInferShape(NoShapes);
  if (wish == "no inferShape") add("LibBare", 13).setForward(Forward).setParseAttrs(Count<1, 1>);
  if (wish == "no inferType")
    add("LibBare", 14).setForward(Forward).setParseAttrs(Count<0, 1>).setInferShape(NoShapes);
  if (wish == "attribute twice")
    add("LibBare", 15).setForward(Forward).arg("a", "one").arg("a", "two", 2);
  if (wish == "gradient twice") {
    add("LibWithGradient", 10).setForward(Forward).setBackward(Forward);
    add("LibWithGradient_backward", 11).setForward(Forward);
  }
  return true;
}();

}  // namespace
