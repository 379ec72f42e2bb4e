CREATE TABLE agent_conversations (id INTEGER PRIMARY KEY, conversation_id TEXT NOT NULL UNIQUE, conversation_data TEXT NOT NULL, last_modified_at TIMESTAMP NOT NULL);
CREATE TABLE agent_tasks (id INTEGER PRIMARY KEY, conversation_id TEXT NOT NULL, task_id TEXT NOT NULL UNIQUE, task BLOB NOT NULL, last_modified_at TIMESTAMP NOT NULL);
CREATE TABLE ai_queries (id INTEGER PRIMARY KEY, exchange_id TEXT NOT NULL UNIQUE, conversation_id TEXT NOT NULL, start_ts TIMESTAMP NOT NULL, input TEXT NOT NULL, working_directory TEXT, output_status TEXT NOT NULL, model_id TEXT NOT NULL);

INSERT INTO ai_queries (exchange_id, conversation_id, start_ts, input, working_directory, output_status, model_id) VALUES ('ex-1', 'warp-1', '2026-01-02 03:04:05', '[{"Query": {"text": "Engage"}}]', '/home/ann/demo', '"Completed"', 'made-up-14');
INSERT INTO ai_queries (exchange_id, conversation_id, start_ts, input, working_directory, output_status, model_id) VALUES ('ex-2', 'warp-1', '2026-01-02 03:05:05', '[{"Query": {"text": "Stop"}}]', '/home/ann/demo', '"Completed"', 'made-up-14');
INSERT INTO agent_tasks (conversation_id, task_id, task, last_modified_at) VALUES ('warp-1', 'task-1', x'0a067461736b2d312a240a0277315a067461736b2d316a0465782d31720608a5ebdcca0612080a06456e676167652a260a0277325a067461736b2d316a0465782d31720608a7ebdcca061a0a0a08456e67616765642e', '2026-01-02 03:04:08');
