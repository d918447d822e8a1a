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
void ByFlags(const std::string&, std::vector<bool>& ids, const Unordered*) { ids = {false, true}; }
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

TEST_CASE("functions are adapted to one form, which answers ids for flags") {
  std::vector<int> ids(3, -2);
  detail::StringMapArgument options(Items{{"a", "1"}});
  auto by_pointer = detail::AdaptTo<detail::SupportedOpsFunction>(ByPointer);
  CHECK(by_pointer("{}", ids, options).ok());
  CHECK(ids == std::vector<int>{-2, -2, -1});
  auto by_vector = detail::AdaptTo<detail::SupportedOpsFunction>(ByVector);
  CHECK_FALSE(by_vector("{}", ids, options).ok());
  CHECK(ids == std::vector<int>{1});
  auto by_flags = detail::AdaptTo<detail::SupportedOpsFunction>(ByFlags);
  CHECK(by_flags("{}", ids, options).ok());
  CHECK(ids == std::vector<int>{-2, -1});

  bool accept = false;
  detail::StringMapArgument attrs;
  detail::TensorMapArgument args(detail::TensorMapArgument::Items{{"w", OpTensor()}}), aux;
  auto accepts = detail::AdaptTo<detail::AcceptFunction>(Accepts);
  CHECK(accepts("{}", 7, &accept, options, attrs, args, aux).ok());
  CHECK(accept);
  CHECK(attrs.Read() == Items{{"id", "7"}});
}

TEST_CASE("a map by value is a copy, which the function may change") {
  detail::StringMapArgument options(Items{{"a", "1"}});
  auto changes = detail::AdaptTo<detail::AcceptFunction>(
      [](std::string, int, bool*, Unordered, Unordered attrs) { attrs["a"] = "2"; });
  bool accept = true;
  detail::StringMapArgument attrs(Items{{"a", "1"}});
  detail::TensorMapArgument none;
  CHECK(changes("{}", 0, &accept, options, attrs, none, none).ok());
  CHECK(attrs.Read() == Items{{"a", "1"}});
}

}  // namespace partition_signature_test
