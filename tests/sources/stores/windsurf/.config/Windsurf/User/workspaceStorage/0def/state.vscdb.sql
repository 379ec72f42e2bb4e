CREATE TABLE ItemTable (key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB);

INSERT INTO ItemTable (key, value) VALUES ('workbench.panel.aichat.view.aichat.chatdata', '{"tabs": [{"tabId": "tab-1", "chatTitle": "Sail", "lastSendTime": 1767323048000, "bubbles": [{"type": "user", "id": "w1", "text": "Set sail"}, {"type": "ai", "id": "w2", "rawText": "There is no wind."}]}, {"tabId": "tab-2", "chatTitle": "Empty", "bubbles": []}]}');
