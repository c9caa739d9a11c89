#!/usr/bin/env bash
# A conversation with `worldagent serve --http`, as docs/reference/sidecar.md has it, with curl and bash alone.
#
#   WORLDAGENT_SIDECAR_TOKEN=... ./conversation.sh http://127.0.0.1:8200/mcp
#
# The regular expressions below read ids, numbers and plain words. For texts with quotes in them, use jq.
set -euo pipefail

url=${1:?name the address of the sidecar}
: "${WORLDAGENT_SIDECAR_TOKEN:?set it to the bearer token}"
place='"account":"ana","thread":"curl"'

# post TOOL ARGUMENTS: calls a tool; prints what comes. Token and text stand in no process's arguments.
post() {
  local meta='"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}'
  printf '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"%s","arguments":{%s},"_meta":{%s}}}' \
    "$1" "$2" "$meta,\"progressToken\":1" |
    curl --silent --no-buffer --config <(printf 'header = "Authorization: Bearer %s"' "$WORLDAGENT_SIDECAR_TOKEN") \
      --header 'Content-Type: application/json' --header 'Accept: application/json, text/event-stream' \
      --header 'MCP-Protocol-Version: 2026-07-28' --header 'Mcp-Method: tools/call' --header "Mcp-Name: $1" \
      --data-binary @- "$url"
}

# call TOOL ARGUMENTS: shows the text as it comes. Leaves the turn's id, the number of its last event, and the answer,
# which is empty where the connection broke. With `leave` it goes away itself after so many events, and sets `left`.
call() {
  local line heard=0
  answer='' left=''
  while IFS= read -r line || [[ -n $line ]]; do
    line=${line%$'\r'}
    if [[ $line == *'"method":"notifications/progress"'* ]]; then
      show "${line//\\\"/\"}" # the event is JSON in a text of JSON
      if ((++heard == ${leave:-0})); then
        leave='' left=yes
        break
      fi
    elif [[ $line == *'"jsonrpc"'* || $line == *'"error"'* ]]; then
      answer=${line#*'"structuredContent":'}
    fi
  done < <(post "$1" "$2")
}

# show EVENT: new types of event may come, so others are passed over.
show() {
  [[ $1 =~ \"turn_id\":\"([^\"]*)\" ]] && turn=${BASH_REMATCH[1]}
  [[ $1 =~ \"seq\":([0-9]+) ]] && seq=${BASH_REMATCH[1]}
  case $1 in
    *'"type":"text_delta"'*) [[ $1 =~ \"text\":\"([^\"]*)\" ]] && printf %s "${BASH_REMATCH[1]}" ;;
    *'"interim":true'*) echo ;; # what was said before calls is no answer
    *'"type":"text_replaced"'*) [[ $1 =~ \"text\":\"([^\"]*)\" ]] && printf '\n%s' "${BASH_REMATCH[1]}" ;;
  esac
}

# hold TEXT: a turn from a message to its end, whatever becomes of the connection and the sidecar meanwhile.
hold() {
  turn='' seq=0 tries=0
  # However often it is called with one key, it is one turn. It goes on when we are gone.
  local tool=converse arguments="$place,\"text\":\"$1\",\"key\":\"$$-$RANDOM-$RANDOM\",\"detach\":true"
  while ((tries++ < 60)); do
    call "$tool" "$arguments,\"after\":$seq"
    [[ $answer =~ \"status\":\"([a-z_]*)\" ]] && status=${BASH_REMATCH[1]} || status=
    case $status in
      '' | running)
        if [[ $answer == *'"error":'* && $answer != *'"retryable":true'* ]]; then break; fi
        if [[ -n $left ]]; then
          echo && echo "[gone after event $seq, and back]"
        elif [[ -z $answer ]]; then
          sleep 0.5
        fi
        if [[ -n $turn ]]; then tool=events arguments="\"account\":\"ana\",\"turn_id\":\"$turn\""; fi
        ;;
      cut_off | stopped) tool=resume arguments=$place ;;
      paused) ask && tool=resume arguments="$place,\"answers\":{\"$pause\":$decision}" ;;
      *) break ;;
    esac
  done
  echo && echo "[${status:-$answer}]"
}

# ask: what the turn waits for is the call of a function. Sets `pause` and `decision`.
ask() {
  local waits=${answer#*'"pauses":['} yes
  [[ $waits =~ \"id\":\"([^\"]*)\" ]] && pause=${BASH_REMATCH[1]}
  [[ $waits =~ \"function\":\"([^\"]*)\" ]] && echo "[may it call ${BASH_REMATCH[1]}? y or n]"
  IFS= read -r yes
  [[ $waits =~ \"hash\":\"([^\"]*)\" ]] && decision="{\"approve\":{\"hash\":\"${BASH_REMATCH[1]}\"}}"
  if [[ ! $yes =~ ^[Yy]([Ee][Ss])?$ ]]; then decision='{"reject":{}}'; fi
}

# say TEXT: holds a turn. Where there was none, a wrong address or token say, the rest would come to nothing too.
say() {
  echo "> $1"
  hold "$1"
  [[ -n $status ]] || exit 1
}

leave=4
say 'count to twelve'
say 'buy a hat'
(sleep 1 && post cancel "$place" >/dev/null) &
say 'count again'
wait
