#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <strata/serve/api_call.h>

namespace strata::test {

inline nlohmann::json body_of(const ApiResponse& response, int status = 200) {
  EXPECT_EQ(response.status, status) << response.body;
  EXPECT_FALSE(response.next);
  return nlohmann::json::parse(response.body);
}
inline std::string message_of(const ApiResponse& response, int status) {
  return body_of(response, status)["error"]["message"];
}
/// The events of a stream without the last one, "[DONE]".
inline std::vector<nlohmann::json> events_of(const ApiResponse& response) {
  EXPECT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(response.content_type, "text/event-stream");
  std::string all;
  while (const auto piece = response.next()) all += *piece;
  std::vector<nlohmann::json> events;
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t end = all.find("\n\n", at);
    const std::string data = all.substr(at + 6, end - at - 6);
    at = end + 2;
    if (data != "[DONE]") events.push_back(nlohmann::json::parse(data));
    EXPECT_EQ(data == "[DONE]", at == all.size()) << data;
  }
  return events;
}
inline std::string text_of(const std::vector<nlohmann::json>& events, std::size_t choice = 0) {
  std::string text;
  for (const nlohmann::json& event : events)
    for (const nlohmann::json& each : event["choices"])
      if (each["index"] == choice)
        text += each.contains("text") ? each["text"].get<std::string>() : each["delta"].value("content", "");
  return text;
}

}  // namespace strata::test
