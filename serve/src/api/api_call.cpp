#include <strata/serve/api_call.h>

namespace strata {

ApiResponse response_of(const ApiError& error) {
  ApiResponse response;
  response.status = error.http_status;
  response.body = to_json(error);
  if (error.http_status == 429 || error.http_status == 503) response.retry_after_s = 1;
  return response;
}

}  // namespace strata
