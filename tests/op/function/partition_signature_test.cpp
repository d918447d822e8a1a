#include "opkit/op/function/partition_signature.hpp"

#include <doctest/doctest.h>

#include <map>
#include <unordered_map>

namespace partition_signature_test {
using namespace opkit;

namespace {

using Items = detail::StringMapArgument::Items;
using Unordered = std::unordered_map<std::string, std::string>;
using Tensors = std::map<std::string, OpTensor>;

ReturnValue ByPointer(std::string, const int count, int* ids, Unordered& options) {
  ids[count - 1] = static_cast<int>(options.size());
  return SUCCESS;
}
ReturnValue ByVector(std::string, std::vector<int>& ids, Unordered options) {
  ids = {static_cast<int>(options.size())};
  return FAIL;
}
int Accepts(std::string, int id, bool* accept, Unordered&, Unordered& attrs, Tensors& args,
            Tensors& aux) {
  attrs["id"] = std::to_string(id);
  *accept = args.count("w") == 1 && aux.empty();
  return SUCCESS;
}

}  // namespace

TEST_CASE("an argument becomes the function's map, whose contents are read afterwards") {
  detail::StringMapArgument options(Items{{"a", "1"}, {"b", "2"}});
  CHECK(options.Read() == Items{{"a", "1"}, {"b", "2"}});
  std::map<std::string, std::string>& map = options;
  CHECK(map.at("b") == "2");
  map["c"] = "3";
  CHECK(options.Read() == Items{{"a", "1"}, {"b", "2"}, {"c", "3"}});
}

TEST_CASE("MXNet's signatures are called as they stand") {
  std::vector<int> ids(3, -2);
  detail::StringMapArgument options(Items{{"a", "1"}});
  CHECK(detail::CallSupportedOps(ByPointer, "{}", ids, options) == SUCCESS);
  CHECK(ids == std::vector<int>{-2, -2, 1});
  CHECK(detail::CallSupportedOps(ByVector, "{}", ids, options) == FAIL);
  CHECK(ids == std::vector<int>{1});

  bool accept = false;
  detail::StringMapArgument attrs;
  detail::TensorMapArgument args(detail::TensorMapArgument::Items{{"w", OpTensor()}}), aux;
  CHECK(detail::CallAcceptSubgraph(Accepts, "{}", 7, &accept, options, attrs, args, aux) ==
        SUCCESS);
  CHECK(accept);
  CHECK(attrs.Read() == Items{{"id", "7"}});
}

}  // namespace partition_signature_test
