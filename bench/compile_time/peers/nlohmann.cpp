#include <iostream>
#include <nlohmann/json.hpp>

int main() { std::cout << nlohmann::json::parse(R"({"a": [1, 2]})").dump() << "\n"; }
